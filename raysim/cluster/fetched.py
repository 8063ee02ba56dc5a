"""A run that a cluster made, here: its paths, and the results to show.

Nothing in the folder is trusted. Its experiment may name any code, so these functions read it as plain TOML and JSON.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from math import isnan
from pathlib import Path
from typing import Any

from partitioning.common.paths import open_regular
from raysim.config.read import algorithm_names
from raysim.store.config_file import check_config, write_config
from raysim.store.names import CONFIG, REPORT, SUMMARY

PATH_KEYS: Mapping[str, tuple[str, ...]] = {
    "data": ("dataset", "root", "population", "test"),
    "model": ("weights",),
}
"""Keys of an experiment that name files or folders, beside `modules`."""

LARGEST = 2**22
"""Most bytes of a fetched file that is read here."""

MOST_RESULTS = 1000
"""Most algorithms whose results are shown."""


class DamagedRunError(RuntimeError):
    """Fetched run with a file that raysim does not write."""


@dataclass(frozen=True)
class FetchedResult:
    """Numbers of an algorithm that the terminal shows; fields as in `AlgorithmResult`."""

    name: str
    metrics: Mapping[str, float]
    rounds: int
    seconds: float
    bytes_up: int
    bytes_down: int
    epsilon: float | None = None
    simulated_seconds: float | None = None


@dataclass(frozen=True)
class FetchedRun:
    """Run that a cluster made.

    Args:
        folder: folder of the run here.
        results: result of each algorithm that has ended.
        uri: URI of the run; None without one.
    """

    folder: Path
    results: tuple[FetchedResult, ...]
    uri: str | None = None

    @property
    def report(self) -> Path:
        return self.folder / REPORT


def relocate(folder: Path, paths: Mapping[str, Any]) -> None:
    """Restore this machine's paths in the run's experiment, for a resume here.

    Args:
        folder: folder of the run.
        paths: paths here by table and key, and `modules`; see `checked_paths`.

    Raises:
        DamagedRunError: the experiment is not one that raysim writes.
    """
    path = folder / CONFIG
    if not path.is_file():
        return
    with _readable(path):
        config = tomllib.loads(_text(path))
        check_config(path, config)
        for part in PATH_KEYS:
            config[part] = {**config[part], **paths[part]}
        if paths["modules"] is not None:
            config["modules"] = paths["modules"]
        write_config(path, config)


def checked_paths(given: Any) -> dict[str, Any]:
    """Return the paths that a job's metadata hold for `relocate`.

    Raises:
        ValueError: they have other keys or types.
    """
    modules = given["modules"]
    tables = {part: dict(given[part]) for part in PATH_KEYS}
    known = all(key in PATH_KEYS[part] for part, table in tables.items() for key in table)
    texts = [*(value for table in tables.values() for value in table.values()), *(modules or ())]
    plain = isinstance(modules, list | None) and all(isinstance(each, str | int | float) for each in texts)
    if not known or not plain:
        raise ValueError("other keys or types")
    return {**tables, "modules": modules}


def fetched_run(folder: Path, uri: str | None = None) -> FetchedRun:
    """Return a run with the results of its algorithms; the code that it names is not imported.

    Raises:
        DamagedRunError: a file is not one that raysim writes.
    """
    path = folder / CONFIG
    with _readable(path):
        tables = tomllib.loads(_text(path))["algorithm"]
        names = algorithm_names(tables)[:MOST_RESULTS]
    ended = [folder / name for name in names if Path(name).name == name and (folder / name / SUMMARY).is_file()]
    return FetchedRun(folder, tuple(map(_result, ended)), uri)


def _result(folder: Path) -> FetchedResult:
    with _readable(folder / SUMMARY):
        summary = json.loads(_text(folder / SUMMARY))
        return FetchedResult(
            folder.name,
            {str(name): float(value) for name, value in dict(summary["metrics"]).items()},
            int(summary["rounds"]),
            float(summary["seconds"]),
            int(summary["bytes_up"]),
            int(summary["bytes_down"]),
            None if (epsilon := summary.get("epsilon")) is None else float(epsilon),
            None if (virtual := summary.get("simulated_seconds")) is None else _number(virtual),
        )


def _number(value: Any) -> float:
    if isnan(number := float(value)):
        raise ValueError("it has NaN for a time")
    return number


def _text(path: Path) -> str:
    with open_regular(path) as file:
        data = file.read(LARGEST + 1)
    if len(data) > LARGEST:
        raise ValueError(f"it has more than {LARGEST:,} bytes")
    return data.decode()


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    """Turn errors of reading an unknown file in the context into a DamagedRunError."""
    try:
        yield
    except (OSError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError) as error:
        raise DamagedRunError(f"{path} is not as raysim writes it ({type(error).__name__}: {error})") from None
