"""Reading a study's folder into values: `study.toml`, `trials.parquet`, and the rounds of its trials."""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from partitioning.common.paths import read_parquet, regular
from partitioning.common.text import word
from raysim.common.errors import InputError
from raysim.common.statistics import mean_and_std
from raysim.plots.panels import Curve
from raysim.report.read import algorithms_of, read_config, readable_table
from raysim.studies.folder import LOST, STUDY, TRIALS
from raysim.studies.split import Split

COLUMNS = ("dataset", "algorithm", "point", "seed", "fold", "validation", "stage", "chosen", "status", "trial")
"""Columns of `trials.parquet` that identify a trial; the others are `partition_seed`, `seconds`, `rounds` and
its metrics."""

AGAIN = "run the study again"

Values = NDArray[np.float64]


@dataclass(frozen=True)
class TrialRow:
    """One row of `trials.parquet`: one run of one algorithm.

    Args:
        dataset: name of the data set in the study.
        algorithm: folder of the algorithm in its run.
        point: hyper-parameters, as JSON.
        split: seed and folds.
        is_final: whether the trial counts for the table; else it belongs to the search alone.
        is_chosen: whether its point won the search.
        status: "done", "diverged" or "failed".
        folder: folder of its run in `trials/`.
        seconds: time of its rounds; None if unknown.
        rounds: number of its rounds; None if unknown.
        metrics: final metrics by column; None without a value.
    """

    dataset: str
    algorithm: str
    point: str
    split: Split
    is_final: bool
    is_chosen: bool
    status: str
    folder: str
    seconds: float | None
    rounds: int | None
    metrics: Mapping[str, float | None]

    @property
    def counts(self) -> bool:
        """Whether the trial counts for the table."""
        return self.is_final and self.is_chosen

    def value(self, metric: str) -> float | None:
        """Return a finite final metric; None if the trial did not end well, or the metric is undefined."""
        value = self.metrics.get(metric) if self.status == "done" else None
        return value if value is not None and isfinite(value) else None


@dataclass(frozen=True)
class Findings:
    """Configuration of a study, and the trials that have ended.

    Args:
        folder: folder of the study.
        config: tables of `study.toml`.
        config_text: its text.
        trials: rows of `trials.parquet`.
        lost: sentence about each data set and algorithm without a winner.
    """

    folder: Path
    config: Mapping[str, Any]
    config_text: str
    trials: tuple[TrialRow, ...]
    lost: Mapping[tuple[str, str], str]

    @property
    def name(self) -> str:
        return self.folder.resolve().name

    @property
    def metric(self) -> str:
        """Column that the study reports."""
        return str(self.config["study"]["metric"])

    @property
    def select_by(self) -> str:
        """Column that the search compares."""
        return str(self.config["study"]["select_by"])

    @property
    def baseline(self) -> str:
        """Algorithm that the others are compared with."""
        return str(self.config["study"]["baseline"])

    @cached_property
    def datasets(self) -> list[str]:
        """Data sets in the study file's order."""
        return _ordered(self.config["study"].get("datasets", {}), (each.dataset for each in self.trials))

    @cached_property
    def algorithms(self) -> list[str]:
        """The baseline, then the others in the study file's order, those without trials included."""
        return _ordered([self.baseline], [*algorithms_of(self.config), *(each.algorithm for each in self.trials)])

    def of(self, dataset: str, algorithm: str) -> list[TrialRow]:
        """Return the trials of an algorithm on a data set."""
        return [each for each in self.trials if (each.dataset, each.algorithm) == (dataset, algorithm)]

    def counting(self, dataset: str, algorithm: str) -> list[TrialRow]:
        """Return the trials that count for the table and have ended well."""
        return [each for each in self.of(dataset, algorithm) if each.counts and each.status == "done"]

    def inherited(self, algorithm: str) -> Mapping[str, str]:
        """Return the hyper-parameters that an algorithm takes from others, with the others' names."""
        return dict(self.config["study"].get("inherit", {}).get(algorithm, {}))

    def columns(self, trial: TrialRow) -> list[str]:
        """Return the columns of a trial's rounds; empty without a run."""
        path = metrics_of(self.folder, trial.folder, trial.algorithm)
        if path is None:
            return []
        with readable_table(path, AGAIN):
            return list(pq.read_schema(regular(path)).names)

    def rounds(self, trial: TrialRow, *columns: str) -> dict[str, Values]:
        """Return a trial's rounds and the columns that its run has, NaN without a value; empty if it has none."""
        path = metrics_of(self.folder, trial.folder, trial.algorithm)
        if path is None:
            return {}
        with readable_table(path, AGAIN), pq.ParquetFile(regular(path)) as file:
            names = [name for name in columns if name in file.schema_arrow.names]
            table = file.read(["round", *names])
        return {name: np.asarray(table[name].to_numpy(), dtype=np.float64) for name in ("round", *names) if names}

    def runs(self, dataset: str, algorithm: str, *columns: str) -> list[dict[str, Values]]:
        """Return the rounds and the columns of each trial that counts, has ended well and has a column."""
        found = [self.rounds(each, *columns) for each in self.counting(dataset, algorithm)]
        return [run for run in found if run]


def mean_curve(runs: Iterable[Mapping[str, Values]], column: str) -> Curve:
    """Return the mean and the standard deviation of a column by round, over the runs that have a value there."""
    values: dict[float, list[float]] = defaultdict(list)
    for run in runs:
        known = np.isfinite(run[column])
        for round_number, value in zip(run["round"][known].tolist(), run[column][known].tolist(), strict=True):
            values[round_number].append(value)
    found = [mean_and_std(values[round_number]) for round_number in sorted(values)]
    means, stds = np.array([mean for mean, _ in found]), np.array([std or 0.0 for _, std in found])
    return Curve(np.array(sorted(values)), means, stds)


def only_study(folders: Sequence[Path | str]) -> Path | None:
    """Return the folder of the study of a report; None if the folders are those of runs.

    Raises:
        InputError: a study stands beside others.
    """
    studies = [Path(folder) for folder in folders if (Path(folder) / STUDY).is_file()]
    if studies and len(folders) > 1:
        raise InputError(
            f"{studies[0]}: must be the folder of a run beside other folders, and is a study's; give a study alone: "
            f"raysim report {word(studies[0])}"
        )
    return studies[0] if studies else None


def metrics_of(folder: Path, trial: str, algorithm: str) -> Path | None:
    """Return the file of an algorithm's rounds in a trial's folder; None if the run is not there."""
    run = folder / "trials" / trial
    # The second fedavg of a study is the first of its run.
    found = [run / algorithm / "metrics.parquet", *sorted(run.glob("*/metrics.parquet"))]
    return next((each for each in found if each.is_file()), None)


def read_findings(folder: Path) -> Findings:
    """Read a study's folder.

    Raises:
        InputError: the folder is not that of a study, no trial has ended, a file is damaged, or a metric is unknown.
    """
    missing = f"no study in {folder}: must hold a {STUDY}; give one that raysim study wrote"
    config, text = read_config(folder / STUDY, missing, "study")
    absent = [key for key in ("metric", "select_by", "baseline") if key not in config.get("study", {})]
    if absent:
        raise InputError(
            f"{folder / STUDY}: study.{absent[0]} is missing: must be there; restore the file of the study"
        )
    table = _ended_trials(folder)
    study = Findings(folder, config, text, tuple(trial_rows(table)), lost_in(table))
    _check_metrics(study, _metrics_in(table))
    return study


def lost_in(table: pa.Table) -> dict[tuple[str, str], str]:
    """Return a sentence about each data set and algorithm without a winner, from the metadata of `trials.parquet`."""
    found = json.loads((table.schema.metadata or {}).get(LOST.encode(), "[]"))
    return {(dataset, algorithm): reason for dataset, algorithm, reason in found}


def trial_rows(table: pa.Table) -> Iterator[TrialRow]:
    """Yield the rows of `trials.parquet`.

    Raises:
        InputError: a column is missing.
    """
    missing = [name for name in COLUMNS if name not in table.column_names]
    if missing:
        raise InputError(f"{TRIALS} has no column {missing[0]!r}: must have {', '.join(COLUMNS)}; {AGAIN}")
    metrics = _metrics_in(table)
    for row in table.to_pylist():
        yield TrialRow(
            dataset=row["dataset"],
            algorithm=row["algorithm"],
            point=row["point"],
            split=Split(row["seed"], row["fold"], row["validation"], row.get("partition_seed")),
            is_final=row["stage"] == "final",
            is_chosen=bool(row["chosen"]),
            status=row["status"],
            folder=row["trial"],
            seconds=row.get("seconds"),
            rounds=row.get("rounds"),
            metrics={name: row[name] for name in metrics},
        )


def _ended_trials(folder: Path) -> pa.Table:
    """Read `trials.parquet`; raise InputError if no trial has ended."""
    path = folder / TRIALS
    if path.is_file():
        with readable_table(path, AGAIN):
            table = read_parquet(path)
        if table.num_rows or lost_in(table):  # a running study writes the table before its first trial has ended
            return table
    raise InputError(f"{folder}: must have a trial that has ended; run the study: raysim study {word(folder / STUDY)}")


def _metrics_in(table: pa.Table) -> list[str]:
    """Return the columns of metrics of `trials.parquet`."""
    others = [name for name in table.column_names if name not in (*COLUMNS, "partition_seed", "seconds")]
    return [name for name in others if pa.types.is_floating(table.schema.field(name).type)]


def keys_of(point: str) -> dict[str, Any]:
    """Return a point's hyper-parameters by key."""
    return dict(json.loads(point or "{}"))


def _check_metrics(study: Findings, measured: Sequence[str]) -> None:
    """Raise InputError if the reported metric, or after a search the one that it compares, is no measured column.

    A column without a finite value is one: the study may have no winner for that very reason.
    """
    is_searched = not all(each.is_chosen for each in study.trials)
    for key in ("metric", "select_by") if is_searched else ("metric",):
        name = study.config["study"][key]
        if name not in measured:
            raise InputError(
                f"study.{key} = {name!r}: must be a column that the trials have measured "
                f"({', '.join(sorted(measured))}); change it in {study.folder / STUDY}"
            )


def _ordered(first: Iterable[str], others: Iterable[str]) -> list[str]:
    """Return `others` without repetitions: in the order of `first`, then in their own."""
    found = dict.fromkeys(others)
    return list(dict.fromkeys([*(each for each in first if each in found), *found]))
