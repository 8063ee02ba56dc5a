"""Where a reproduction's numbers come from: the commit, the machine, and a digest that shows if they come again."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import torch

import raysim
from raysim.reproduction.file import Reproduction

RESULTS = ("raysim/recipes/results", "raysim/recipes/README.md")
CODE = ("raysim", "algorithms", "partitioning", "pyproject.toml", *(f":(exclude){path}" for path in RESULTS))
"""What of a checkout results come from."""

TIMED = ("seconds", "machine_")
"""What the columns begin with that differ from run to run."""


def commit() -> str | None:
    """The commit of the checkout that raysim is run from, with a `+` where its code differs; None outside one."""
    here = Path(raysim.__file__).parents[1]
    if not (here / ".git").exists():
        return None
    try:
        name = _git(here, "rev-parse", "HEAD").strip()
        return name + ("+" if _git(here, "status", "--porcelain", "--untracked-files=normal", "--", *CODE) else "")
    except (OSError, subprocess.CalledProcessError):
        return None


def machine() -> str:
    """The processor and what torch uses of it, the cores, and torch."""
    used = torch.backends.cpu.get_cpu_capability()
    return f"{_processor()} ({used}), {os.cpu_count()} cores, torch {torch.__version__}"


def setting_of(reproduction: Reproduction, full: bool) -> str:
    """The sha256 of all that a reproduction's file says of its study."""
    return hashlib.sha256(json.dumps(reproduction.study(full), sort_keys=True).encode()).hexdigest()


def digest(folder: Path) -> str:
    """The sha256 of a study's models and metrics, trial by trial, without what is timed.

    Args:
        folder: of the study.
    """
    found = hashlib.sha256()
    for trial in sorted(pq.read_table(folder / "trials.parquet").to_pylist(), key=_what):
        found.update(_what(trial).encode())
        # A trial has one algorithm.
        for path in sorted((folder / "trials" / trial["trial"]).glob("*/model.safetensors")):
            found.update(path.read_bytes())
        for path in sorted((folder / "trials" / trial["trial"]).glob("*/metrics.parquet")):
            found.update(b"".join(_metrics(path)))
    return found.hexdigest()


def _what(trial: Mapping[str, object]) -> str:
    """What is tried, and not where: a trial's folder is named by all of its settings, of which there may come more."""
    keys = ("dataset", "algorithm", "point", "seed", "fold", "validation", "stage", "status")
    return repr([trial[key] for key in keys])


def _metrics(path: Path) -> Iterator[bytes]:
    """Column by column: values say the same in every version of the file's format."""
    table = pq.read_table(path)
    for name in table.column_names:
        if not name.startswith(TIMED):
            column: pa.ChunkedArray = table[name]
            yield f"{name}:{column.to_pylist()!r}".encode()


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def _git(folder: Path, *words: str) -> str:
    return subprocess.run(["git", "-C", str(folder), *words], check=True, capture_output=True, text=True).stdout
