"""A study's folder, read into values: `study.toml`, `trials.parquet`, and the curves of trials."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from raysim.common.errors import InputError
from raysim.report.read import algorithm_folders
from raysim.studies.folder import STUDY, TRIALS

COLUMNS = ("dataset", "algorithm", "point", "seed", "fold", "validation", "stage", "chosen", "status", "trial")
"""The columns of `trials.parquet` that say what a trial is; besides there are `seconds`, `rounds` and its metrics."""

Values = NDArray[np.float64]


@dataclass(frozen=True)
class Unit:
    """What is paired in a comparison: the seed and the test fold; None where there are no folds."""

    seed: int
    fold: int | None


@dataclass(frozen=True)
class Entry:
    """One row of `trials.parquet`: one run of one algorithm.

    Args:
        dataset: the data set's name in the study.
        algorithm: the algorithm's folder in its run.
        point: its hyper-parameters, as JSON.
        unit: its seed and test fold.
        validation: the validation fold; None where there are no folds.
        is_final: whether it counts for the table, and not for the search alone.
        is_chosen: whether its point won the search.
        status: "done", "diverged" or "failed".
        folder: of its run, in `trials/`.
        seconds: of its rounds; None where it has none.
        metrics: the final ones, of what is a number.
    """

    dataset: str
    algorithm: str
    point: str
    unit: Unit
    validation: int | None
    is_final: bool
    is_chosen: bool
    status: str
    folder: str
    seconds: float | None
    metrics: Mapping[str, float]

    @property
    def counts(self) -> bool:
        """Whether the table is about it."""
        return self.is_final and self.is_chosen

    @property
    def split(self) -> tuple[Unit, int | None]:
        """What it was trained and measured on, and from which seed."""
        return self.unit, self.validation

    def value(self, metric: str) -> float | None:
        """A final metric; None where the trial has not ended well, or the metric is undefined."""
        return self.metrics.get(metric) if self.status == "done" else None


@dataclass(frozen=True)
class Findings:
    """A study as it stands: what was asked, and the trials that have ended."""

    folder: Path
    config: Mapping[str, Any]
    config_text: str
    trials: tuple[Entry, ...]

    @property
    def name(self) -> str:
        return self.folder.resolve().name

    @property
    def metric(self) -> str:
        """The column that is reported."""
        return str(self.config["study"]["metric"])

    @property
    def select_by(self) -> str:
        """The column that the search goes by."""
        return str(self.config["study"]["select_by"])

    @property
    def baseline(self) -> str:
        """The algorithm that the others are compared with."""
        return str(self.config["study"]["baseline"])

    @cached_property
    def datasets(self) -> list[str]:
        """In the study file's order."""
        return _ordered(self.config["study"].get("datasets", {}), (each.dataset for each in self.trials))

    @cached_property
    def algorithms(self) -> list[str]:
        """The baseline, then the others in the study file's order."""
        return _ordered([self.baseline, *algorithm_folders(self.config)], (each.algorithm for each in self.trials))

    def of(self, dataset: str, algorithm: str) -> list[Entry]:
        """The trials of an algorithm on a data set."""
        return [each for each in self.trials if (each.dataset, each.algorithm) == (dataset, algorithm)]

    def counting(self, dataset: str, algorithm: str) -> list[Entry]:
        """Those of them that count for the table and have ended well."""
        return [each for each in self.of(dataset, algorithm) if each.counts and each.status == "done"]

    def inherited(self, algorithm: str) -> Mapping[str, str]:
        """The hyper-parameters that an algorithm takes from others, and from whom."""
        return dict(self.config["study"].get("inherit", {}).get(algorithm, {}))

    def columns(self, trial: Entry) -> list[str]:
        """What the trial has by round; empty without a run."""
        path = metrics_of(self.folder, trial.folder, trial.algorithm)
        if path is None:
            return []
        with _readable(path):
            return list(pq.read_schema(path).names)

    def curves(self, trial: Entry, columns: Sequence[str]) -> dict[str, Values]:
        """The trial's rounds and some of its columns by round, NaN where there is no value; empty without a run."""
        path = metrics_of(self.folder, trial.folder, trial.algorithm)
        if path is None:
            return {}
        with _readable(path):
            there = [name for name in columns if name in pq.read_schema(path).names]
            table = pq.read_table(path, columns=["round", *there])
        return {name: np.asarray(table[name].to_numpy(), dtype=np.float64) for name in table.column_names}


@dataclass(frozen=True)
class Standing:
    """How a study stands.

    Args:
        trials: those that have ended, as in `trials.parquet`.
        planned: how many trials each data set and algorithm is to have, as far as is known.
        select_by: the column that the search goes by.
        metric: the column that is reported.
    """

    trials: pa.Table
    planned: Mapping[tuple[str, str], int]
    select_by: str
    metric: str


def is_study(folder: Path) -> bool:
    """Whether a folder is that of a study."""
    return (folder / STUDY).is_file()


def metrics_of(folder: Path, trial: str, algorithm: str) -> Path | None:
    """The file of an algorithm's rounds in the folder of a study's trial; None where the run is not there."""
    run = folder / "trials" / trial
    # The second fedavg of a study is the first of its run.
    found = [run / algorithm / "metrics.parquet", *sorted(run.glob("*/metrics.parquet"))]
    return next((each for each in found if each.is_file()), None)


def read_findings(folder: Path) -> Findings:
    """The study in a folder.

    Raises:
        InputError: it is no study's, no trial has ended, a file is damaged, or its metrics are unknown.
    """
    config, text = _config(folder / STUDY)
    path = folder / TRIALS
    if not path.is_file():
        raise InputError(f"{folder}: must have a trial that has ended; run the study: raysim study {folder / STUDY}")
    with _readable(path):
        table = pq.read_table(path)
    study = Findings(folder, config, text, tuple(entries_of(table)))
    _check_metrics(study)
    return study


def entries_of(table: pa.Table) -> Iterator[Entry]:
    """The rows of `trials.parquet`.

    Raises:
        InputError: a column is missing.
    """
    missing = [name for name in COLUMNS if name not in table.column_names]
    if missing:
        raise InputError(f"{TRIALS} has no column {missing[0]!r}: must have {', '.join(COLUMNS)}; run the study again")
    metrics = [
        name
        for name in table.column_names
        if name not in (*COLUMNS, "seconds") and pa.types.is_floating(table.schema.field(name).type)
    ]
    for row in table.to_pylist():
        yield Entry(
            dataset=row["dataset"],
            algorithm=row["algorithm"],
            point=row["point"],
            unit=Unit(row["seed"], row["fold"]),
            validation=row["validation"],
            is_final=row["stage"] == "final",
            is_chosen=bool(row["chosen"]),
            status=row["status"],
            folder=row["trial"],
            seconds=row.get("seconds"),
            metrics={name: row[name] for name in metrics if row[name] is not None and np.isfinite(row[name])},
        )


def keys_of(point: str) -> dict[str, Any]:
    """A point's hyper-parameters by their keys."""
    return dict(json.loads(point or "{}"))


def _config(path: Path) -> tuple[dict[str, Any], str]:
    try:
        text = path.read_text(encoding="utf-8")
        config = tomllib.loads(text)
    except (OSError, UnicodeDecodeError):
        raise InputError(f"no study in {path.parent}: must hold a {STUDY}; give one that raysim study wrote") from None
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{path} is not TOML: {error}; restore the file of the study") from None
    missing = [key for key in ("metric", "select_by", "baseline") if key not in config.get("study", {})]
    if missing:
        raise InputError(f"{path}: study.{missing[0]} is missing: must be there; restore the file of the study")
    return config, text


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    """Within, a table is read; one that is damaged is the input's fault."""
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        reason = str(error).splitlines()[0]
        raise InputError(f"{path} is not a Parquet table: {reason}; run the study again") from None


def _check_metrics(study: Findings) -> None:
    """That the reported metric was measured, and the one that is searched by, where there was a search."""
    measured = {column for each in study.trials if each.status == "done" for column in each.metrics}
    keys = ["metric"] if all(each.is_chosen for each in study.trials) else ["metric", "select_by"]
    for key in keys:
        name = study.config["study"][key]
        if measured and name not in measured:
            raise InputError(
                f"study.{key} = {name!r}: must be what the trials have measured ({', '.join(sorted(measured))}); "
                f"change it in {study.folder / STUDY}"
            )


def _ordered(first: Iterable[str], others: Iterable[str]) -> list[str]:
    """Those of `others`, once each: as `first` has them, then as they come."""
    found = dict.fromkeys(others)
    return list(dict.fromkeys([*(each for each in first if each in found), *found]))
