"""Reading a run's folder into values for the page.

A run may lack something: an algorithm that it has not reached, a round without evaluation, a population that has
moved. The page then says so in a sentence. Only damaged files, and folders without a run, are refused.
"""

import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from partitioning import InputError, Population, fetch
from partitioning.common.paths import read_parquet, read_text
from partitioning.common.unreadable import UNREADABLE
from partitioning.store.remote import is_uri
from raysim.common.names import CLIENTS, CONFIG, EDGES, POPULATION, STOPPED, SUMMARY
from raysim.config.read import algorithm_names, algorithm_tables
from raysim.store.journal import batches, joined
from raysim.store.summary import read_summary
from raysim.store.wall_clock import CommandTime, read_commands

Column = NDArray[np.float64]

NOTHING = pa.table({})


@dataclass(frozen=True)
class AlgorithmOutput:
    """Output files of one algorithm of a run.

    Args:
        name: its folder's name: `fedavg`, `radfed`, `fedavg-2`.
        label: its name on the page, which names the run too if there are several.
        metrics: columns of `metrics.parquet`, one value for each round: NaN if a round has none, infinity if the
            value is not a number.
        summary: `summary.json`; while the algorithm has not ended, the reason of its stop, or nothing.
        clients: `clients.parquet`; empty if the clients were not scored, or the algorithm has not ended.
        edges: `edges.parquet`; empty if clients send each other nothing, or the algorithm has not ended.
    """

    name: str
    label: str
    metrics: Mapping[str, Column]
    summary: Mapping[str, Any]
    clients: pa.Table = field(default_factory=lambda: NOTHING)
    edges: pa.Table = field(default_factory=lambda: NOTHING)

    def column(self, name: str) -> Column:
        """Return a column; all NaN if the run did not measure it."""
        return self.metrics.get(name, np.full(self.rounds, np.nan))

    @property
    def rounds(self) -> int:
        return len(self.metrics.get("round", ()))

    @property
    def measured(self) -> list[str]:
        """Columns with at least one value, in the table's order."""
        return [name for name, values in self.metrics.items() if not np.isnan(values).all()]

    @property
    def aggregations(self) -> Column:
        """Rounds that ended in an aggregation; empty if every round did."""
        aggregated = self.column("aggregated") == 1
        return np.empty(0) if aggregated.all() else self.column("round")[aggregated]

    @property
    def model_round(self) -> int | None:
        """Round of the written model; None if it is the last one."""
        found = self.summary.get("model_round")
        return int(found) if found and found != self.summary.get("rounds") else None

    def final(self, name: str) -> float | None:
        """Return the latest value of a column up to the round of the written model."""
        values = self.column(name)
        if self.model_round is not None:
            values = values[self.column("round") <= self.model_round]
        known = values[~np.isnan(values)]
        return float(known[-1]) if known.size else None

    def total(self, name: str) -> float | None:
        """Return the sum of a column over the run; None if it was not measured."""
        values = self.column(name)
        return float(np.nansum(values)) if not np.isnan(values).all() else None


@dataclass(frozen=True)
class RunOutput:
    """Output files of one run: its resolved experiment, the results so far, its clients, and its commands' times."""

    name: str
    config: Mapping[str, Any]
    config_text: str
    results: tuple[AlgorithmOutput, ...]
    unreached: tuple[str, ...]
    population: Population | None
    commands: Sequence[CommandTime]


def read_runs(folders: Sequence[Path]) -> list[RunOutput]:
    """Read runs, in the order given, under distinct names.

    Raises:
        InputError: no folder is given, or one holds no run or a damaged file.
    """
    if not folders:
        raise InputError("no run given: a report needs one or more folders of runs; name one")
    several = len(folders) > 1
    return [_read_run(folder, name, several) for folder, name in zip(folders, _distinct(folders), strict=True)]


def algorithms_of(config: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Return each `[[algorithm]]` table by its folder."""
    tables = algorithm_tables(config) if "algorithm" in config else []
    return dict(zip(algorithm_names(tables), tables, strict=True))


def read_config(path: Path, missing: str, kind: str) -> tuple[dict[str, Any], str]:
    """Read the TOML file of a run or a study; return its tables and its text.

    Args:
        path: of the file.
        missing: error text if the file cannot be read.
        kind: "run" or "study", for the message.

    Raises:
        InputError: the file cannot be read, or is not TOML.
    """
    try:
        text = read_text(path)
        return tomllib.loads(text), text
    except (OSError, UnicodeDecodeError):
        raise InputError(missing) from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is not TOML: {error}; restore the file of the {kind}") from None


@contextmanager
def readable_table(path: Path, remedy: str) -> Iterator[None]:
    """Turn errors of reading a damaged table into an InputError with this remedy."""
    try:
        yield
    except UNREADABLE as error:
        raise InputError(f"{path} is not a Parquet table: {str(error).splitlines()[0]}; {remedy}") from None


def _read_run(folder: Path, name: str, several: bool) -> RunOutput:
    missing = f"no run in {folder}: the folder of a run holds a config.toml; give one that `raysim run` wrote"
    config, text = read_config(folder / CONFIG, missing, "run")
    names = list(algorithms_of(config))
    reached = [each for each in names if _has_rows(folder / each)]
    return RunOutput(
        name=name,
        config=config,
        config_text=text,
        results=tuple(_read_output(folder / each, f"{name}/{each}" if several else each) for each in reached),
        unreached=tuple(each for each in names if each not in reached),
        population=_population(folder, config),
        commands=read_commands(folder),
    )


def _has_rows(folder: Path) -> bool:
    return (folder / "metrics.parquet").is_file() or next(batches(folder / "metrics.journal"), None) is not None


def _read_output(folder: Path, label: str) -> AlgorithmOutput:
    path, journal, scored = folder / "metrics.parquet", folder / "metrics.journal", folder / CLIENTS
    linked = folder / EDGES
    summary = _read_summary(folder / STOPPED) | _read_summary(folder / SUMMARY)
    with readable_table(path, "run again, or resume the run"):
        # Until the algorithm ends, its rows are in the journal.
        table = read_parquet(path) if path.is_file() else _rows_so_far(journal)
        clients, edges = (read_parquet(each) if each.is_file() else NOTHING for each in (scored, linked))
    metrics = {name: _floats(table.column(name)) for name in table.column_names}
    return AlgorithmOutput(folder.name, label, metrics, summary, clients, edges)


def _rows_so_far(journal: Path) -> pa.Table:
    rows = batches(journal)
    first = next(rows)
    return joined(chain([first], rows), first.schema)


def _floats(column: pa.ChunkedArray) -> Column:
    values: Column = column.cast(pa.float64()).to_numpy()
    # A diverged loss was evaluated; it must not pass for a round without evaluation.
    diverged = np.isnan(values) & ~np.asarray(column.is_null())
    return np.where(diverged, np.inf, values)


def _read_summary(path: Path) -> dict[str, Any]:
    return read_summary(path, ("metrics.parquet",)) if path.is_file() else {}


def _population(folder: Path, config: Mapping[str, Any]) -> Population | None:
    """Open the population in the run's folder, or the one that the configuration names; None if neither is there."""
    data = config.get("data", {})
    elsewhere = data.get("population")
    view = config.get("partition", data)
    if is_uri(elsewhere):
        with suppress(InputError):  # for example, without a network
            elsewhere = fetch(elsewhere)
    # A pinned population's shards lie on its sites' nodes, so none of them is opened here.
    sites = () if config.get("fleet", {}).get("pinned") and elsewhere else None
    for path in [folder / POPULATION, *([Path(elsewhere)] if elsewhere else [])]:
        if (path / "manifest.json").is_file():
            return Population.open(path, view.get("fold"), view.get("validation"), sites=sites)
    return None


def _distinct(folders: Sequence[Path]) -> list[str]:
    """Return the folders' names; repeated ones are numbered, so that no two curves share a label."""
    names = [folder.resolve().name for folder in folders]
    seen: Counter[str] = Counter()
    distinct = []
    for name in names:
        seen[name] += 1
        distinct.append(name if names.count(name) == 1 else f"{name} ({seen[name]})")
    return distinct
