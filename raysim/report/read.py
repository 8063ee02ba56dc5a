"""A run's folder, read into values that the page can show.

What a run may lack (an algorithm that was not reached, a round without evaluation, a population that has
moved) is an absent value here and a sentence on the page. Only what is damaged, or no run at all, is refused.
"""

from __future__ import annotations

import json
import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from partitioning import InputError, Population, fetch
from partitioning.store.remote import is_uri
from raysim.config.read import algorithm_names
from raysim.store.journal import batches
from raysim.store.run_folder import STOPPED, SUMMARY

Column = NDArray[np.float64]


@dataclass(frozen=True)
class Result:
    """What one algorithm of a run left behind.

    Args:
        name: its folder's name: `fedavg`, `radfed`, `fedavg-2`.
        metrics: the columns of `metrics.parquet`, one value a round: NaN where there is none, infinity where
            it is not a number.
        summary: `summary.json`; when the algorithm has not ended, why it was stopped, or nothing.
    """

    name: str
    metrics: Mapping[str, Column]
    summary: Mapping[str, Any]

    def column(self, name: str) -> Column:
        """One column, NaN all along if the run did not measure it."""
        return self.metrics.get(name, np.full(self.rounds, np.nan))

    @property
    def rounds(self) -> int:
        return len(self.metrics.get("round", ()))

    @property
    def measured(self) -> list[str]:
        """The columns with at least one value, in the table's order."""
        return [name for name, values in self.metrics.items() if not np.isnan(values).all()]

    @property
    def model_round(self) -> int | None:
        """The round that left the model that was written, where it is not the last; None otherwise."""
        found = self.summary.get("model_round")
        return int(found) if found and found != self.summary.get("rounds") else None

    def final(self, name: str) -> float | None:
        """The value of a column that is seldom filled: that of the model that was written, else the latest."""
        values = self.column(name)
        if self.model_round is not None:
            values = values[self.column("round") <= self.model_round]
        known = values[~np.isnan(values)]
        return float(known[-1]) if known.size else None

    def total(self, name: str) -> float | None:
        """The sum of a column over the run, or None where it was not measured."""
        values = self.column(name)
        return float(np.nansum(values)) if not np.isnan(values).all() else None


@dataclass(frozen=True)
class Run:
    """One run: its resolved experiment, the results so far, and the clients it ran on."""

    name: str
    config: Mapping[str, Any]
    config_text: str
    results: tuple[Result, ...]
    unreached: tuple[str, ...]
    population: Population | None


def read_runs(folders: Sequence[Path]) -> list[Run]:
    """The runs in the order given, under names that differ.

    Raises:
        InputError: there is no folder, or one of them is no run or holds a damaged file.
    """
    if not folders:
        raise InputError("no run given: a report needs one or more folders of runs; name one")
    return [read_run(folder, name) for folder, name in zip(folders, _distinct(folders), strict=True)]


def read_run(folder: Path, name: str) -> Run:
    """The run in `folder`, to be shown as `name`."""
    text = _config_text(folder)
    try:
        config = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{folder / 'config.toml'} is not TOML: {error}; restore the file of the run") from None
    names = algorithm_folders(config)
    reached = [each for each in names if _has_rows(folder / each)]
    return Run(
        name=name,
        config=config,
        config_text=text,
        results=tuple(_read_result(folder / each) for each in reached),
        unreached=tuple(each for each in names if each not in reached),
        population=_population(folder, config),
    )


def algorithm_folders(config: Mapping[str, Any]) -> list[str]:
    """The folder of each `[[algorithm]]` table."""
    tables = config.get("algorithm", [])
    return algorithm_names([str(table["name"]) for table in ([tables] if isinstance(tables, Mapping) else tables)])


def _config_text(folder: Path) -> str:
    try:
        return (folder / "config.toml").read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        raise InputError(
            f"no run in {folder}: the folder of a run holds a config.toml; give one that `raysim run` wrote"
        ) from None


def _has_rows(folder: Path) -> bool:
    return (folder / "metrics.parquet").is_file() or next(batches(folder / "metrics.journal"), None) is not None


def _read_result(folder: Path) -> Result:
    path = folder / "metrics.parquet"
    if not path.is_file():  # the algorithm has not ended
        path = path.with_suffix(".journal")
    try:
        table = pq.read_table(path) if path.suffix == ".parquet" else pa.Table.from_batches(batches(path))
    except (OSError, pa.ArrowException) as error:
        reason = str(error).splitlines()[0]
        raise InputError(f"{path} is not a Parquet table: {reason}; run again, or resume the run") from None
    metrics = {name: _floats(table.column(name)) for name in table.column_names}
    return Result(folder.name, metrics, _read_summary(folder / STOPPED) | _read_summary(folder / SUMMARY))


def _floats(column: pa.ChunkedArray) -> Column:
    values = np.array([np.nan if value is None else value for value in column.to_pylist()], dtype=np.float64)
    # A loss that has diverged was evaluated: it must not be taken for a round without evaluation.
    diverged = np.isnan(values) & ~np.asarray(column.is_null())
    return np.where(diverged, np.inf, values)


def _read_summary(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        summary: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise InputError(f"{path} is not JSON: {error}; run again, or resume the run") from None
    return summary


def _population(folder: Path, config: Mapping[str, Any]) -> Population | None:
    """The clients, from the run's folder or from where the configuration refers to; None if neither opens."""
    data = config.get("data", {})
    elsewhere = data.get("population")
    view = config.get("partition", data)
    if is_uri(elsewhere):
        with suppress(InputError):  # as where there is no network
            elsewhere = fetch(elsewhere)
    here = () if config.get("fleet", {}).get("pinned") and elsewhere else None
    for path in [folder / "population", *([Path(elsewhere)] if elsewhere else [])]:
        if (path / "manifest.json").is_file():
            return Population.open(path, view.get("fold"), view.get("validation"), sites=here)
    return None


def _distinct(folders: Sequence[Path]) -> list[str]:
    """The folders' own names; a repeated one is numbered, so that no two curves share a label."""
    names = [folder.resolve().name for folder in folders]
    seen: Counter[str] = Counter()
    distinct = []
    for name in names:
        seen[name] += 1
        distinct.append(name if names.count(name) == 1 else f"{name} ({seen[name]})")
    return distinct
