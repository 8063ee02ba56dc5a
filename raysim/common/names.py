"""Names of the files and folders of a run, and the check of an algorithm's name, which becomes a folder beside them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from unicodedata import normalize

from raysim.common.errors import InputError
from raysim.common.surface import assigned

CONFIG, RUN_LOG, REPORT, WALL_CLOCK = "config.toml", "run.log", "report.html", "wall-clock.json"
POPULATION, WATCH = "population", "watch"
COLUMNS = "columns.json"

DEVICES = "devices-*.arrow"
"""Pattern of the run's copy of a table of devices; its SHA-256 takes the star's place."""

RUN_NAMES = (CONFIG, RUN_LOG, REPORT, WALL_CLOCK, COLUMNS, POPULATION, WATCH, DEVICES)
"""Entries of a run's folder beside those of its algorithms."""

SUMMARY = "summary.json"
"""File that marks an algorithm as finished: all its other files are complete."""

STOPPED = "stopped.json"
"""File with the reason why an algorithm stopped; it is removed when the algorithm continues."""

METRICS, UPDATES, CLIENTS = "metrics.parquet", "updates.parquet", "clients.parquet"
MODEL, PERSONAL, CLUSTERS = "model.safetensors", "personal.safetensors", "clusters.safetensors"

EDGES = "edges.parquet"
"""Table that an option leaves: messages and bytes from client to client."""

RESULTS = (METRICS, UPDATES, CLIENTS, MODEL, PERSONAL, CLUSTERS, EDGES)
"""Files of an algorithm that stay."""

DRAFTS = ".*.partial.*"
"""Pattern of files that were not written to their end."""

CONFIG_DRAFTS = ".config.*.partial.toml"
"""Pattern of drafts of `config.toml`."""

STATE_FILES = (
    *("metrics.journal", "updates.journal", "checkpoint/.partial", "checkpoint/round-*.safetensors", "checkpoint"),
    *("personal/*.bin", "personal/mark-*", "personal", DRAFTS),
)
"""Patterns of an algorithm's files that only a resume needs."""

ALGORITHM_FILES = (*STATE_FILES, *RESULTS, SUMMARY, STOPPED)
"""Patterns of all files of an algorithm."""

LONGEST = 100
"""Most bytes of an algorithm's name; other names are made of it."""

NAME = re.compile(r"\w[\w.-]*(?<!\.)")
"""An algorithm's name: letters, digits and _, inside also . and -."""


def check_names(names: Sequence[str], labels: Sequence[str | None] = ()) -> None:
    """Check that each algorithm gets a folder of its own in a run, on any file system.

    Args:
        names: folder names of the algorithms.
        labels: labels of the algorithms, by default none.

    Raises:
        InputError: a name is no name of a folder, or another file or folder of the run has it.
    """
    taken = {_alike(name): f"the run's own {name}" for name in RUN_NAMES}
    for name in sorted(names, key=lambda name: name in labels):  # a label gives way to a name
        shown = repr(name) if len(name) <= LONGEST else f"{name[:LONGEST]!r}..."
        fault = None
        if not NAME.fullmatch(name) or len(name.encode(errors="replace")) > LONGEST:
            marks = "_ -" if name in labels else ". _ -"
            fault = f"must consist of letters, digits and {marks}, at most {LONGEST} bytes"
        elif other := taken.get(_alike(name)):
            fault = f"must differ from {other}, because both are entries of the run's folder"
        if fault:
            key, remedy = ("label", "choose another label") if name in labels else ("name", "rename the function")
            raise InputError(f"algorithm.{key} = {shown}: {fault}; {remedy}")
        taken[_alike(name)] = f"the algorithm {name}"


def _alike(name: str) -> str:
    """Return a name as a file system compares it that ignores case and the form of Unicode."""
    return normalize("NFKC", normalize("NFKC", name).casefold())


def check_new(out: Path) -> None:
    """Raise InputError if the folder of a new run exists and is not empty, or if it is a file."""
    if out.is_file() or (out.is_dir() and any(out.iterdir())):
        raise in_use(out)


def is_bare(folder: Path) -> bool:
    """Return whether a folder holds at most a log, and drafts of a configuration that was not written to its end."""
    return all(path.name == RUN_LOG or path.match(CONFIG_DRAFTS) for path in folder.iterdir())


def in_use(out: Path) -> InputError:
    """Return the error for the folder of a new run that exists and is not empty."""
    where = assigned("out", str(out))
    if any((out / name).exists() for name in (CONFIG, RUN_LOG)):
        remedy = "choose another, or continue the run with raysim resume"
        return InputError(f"{where} already holds a run: must be a new folder; {remedy}")
    return InputError(f"{where} exists and is not empty: must be a new folder; choose another, or remove it")
