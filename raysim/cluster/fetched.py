"""Runs that a cluster made, brought here, with the one check of their folders.

Nothing in a folder is trusted. Its experiment may name any code, so these functions read it as plain TOML and JSON.
"""

from __future__ import annotations

import json
import secrets
import shlex
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from partitioning.common.paths import open_regular
from raysim.cluster.head import Head
from raysim.cluster.parcel import FetchError, received
from raysim.cluster.submitting import PATHS, ClusterJob, new_place
from raysim.config.read import algorithm_names
from raysim.store.config_file import check_config, write_config
from raysim.store.location import existing_location
from raysim.store.names import CONFIG, SUMMARY
from raysim.store.result import ShownResult
from raysim.watching.progress import display

LARGEST = 2**22  # bytes of a fetched file that is read here


@dataclass(frozen=True)
class FetchedRun:
    """Run that a cluster made: its folder here, its results, and its URI if it has one."""

    folder: Path
    results: tuple[ShownResult, ...]
    uri: str | None = None


def fetch(head: Head, job: ClusterJob, keep: bool) -> FetchedRun | None:
    """Bring an ended run back, from its URI or through the log of a job, and remove the cluster's copy unless kept.

    Returns:
        Run; None if the cluster has no folder.

    Raises:
        FetchError: the folder is too large, was damaged on the way, or is not as raysim writes it.
    """
    if job.uri is not None:
        with display() as watcher, existing_location(job.uri, watcher) as (home, _):
            return FetchedRun(home.folder, adopt(home.folder, job.paths), job.uri)
    out, sender = Path(new_place(job.out)), f"{job.id}-parcel-{secrets.token_hex(3)}"
    head.submit(shlex.join(["python", "-m", "raysim.cluster.parcel", job.stage]), sender)
    with received(head.lines(sender), out) as draft:
        run = None if draft is None else FetchedRun(out, adopt(draft, job.paths))
    if not keep:
        head.submit(shlex.join(["rm", "-rf", "--", job.folder]), f"{sender}-end")
    return run


def adopt(folder: Path, paths: Mapping[str, Any]) -> tuple[ShownResult, ...]:
    """Check a folder from a cluster; return the result of each algorithm that has ended.

    Args:
        folder: folder of a run, which may have failed before it wrote anything.
        paths: paths of this machine by the experiment's keys, to restore in it for a resume here.

    Raises:
        FetchError: a file is not one that raysim writes.
    """
    path = folder / CONFIG
    if not path.is_file():
        return ()
    with _readable(path) as text:
        config = tomllib.loads(text)
        check_config(path, config)
        for place in (place for place in PATHS if place in paths):
            table, _, key = place.rpartition(".")
            (config[table] if table else config)[key] = paths[place]
        write_config(path, config)
        names = algorithm_names(config["algorithm"])
    results = []
    for name in names:
        if Path(name).name == name and (path := folder / name / SUMMARY).is_file():
            with _readable(path) as text:
                results.append(ShownResult.of(name, json.loads(text)))
    return tuple(results)


@contextmanager
def _readable(path: Path) -> Iterator[str]:
    """Yield the text of an unknown file, and turn errors of reading it in the context into a FetchError."""
    try:
        with open_regular(path) as file:
            data = file.read(LARGEST + 1)
        if len(data) > LARGEST:
            raise ValueError(f"it has more than {LARGEST:,} bytes")
        yield data.decode()
    except (OSError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError) as error:
        raise FetchError(f"{path} is not as raysim writes it ({type(error).__name__}: {error})") from None
