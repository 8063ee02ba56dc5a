"""The course of a study: search each grid, choose winners, hand their values on, run the winners everywhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite

import numpy as np
import pyarrow as pa

from raysim.measures.selection import is_better
from raysim.studies.file import DataSet, Study
from raysim.studies.grid import Point, Space, written
from raysim.studies.read import Standing
from raysim.studies.trial import Record, Trial, Trials


@dataclass
class Cell:
    """One algorithm on one data set.

    Args:
        dataset: the one.
        space: of the algorithm.
        search: its trials by the number of their point; none where there is one point only.
        points: none before all that it inherits from have winners.
        winner: the chosen point.
        final: the winner's trials.
        lost: whether no point can be chosen: all diverged or failed, or those of something that it inherits from.
    """

    dataset: DataSet
    space: Space
    points: list[Point] = field(default_factory=list)
    search: list[tuple[int, Trial]] = field(default_factory=list)
    winner: Point | None = None
    final: list[Trial] = field(default_factory=list)
    lost: bool = False

    @property
    def trials(self) -> list[Trial]:
        """All that are known, each once: those of the search first."""
        return list({trial.name: trial for trial in [*(trial for _, trial in self.search), *self.final]}.values())


class Course:
    """What of a study has been run, and what can be run next: a function of the records alone.

    Args:
        study: resolved.
        trials: makes its trials.
        columns: that are measured.
    """

    def __init__(self, study: Study, trials: Trials, columns: Sequence[str]) -> None:
        self._study, self._trials, self._columns = study, trials, columns
        self._cells = {
            (dataset.name, name): Cell(dataset, space)
            for dataset in study.datasets
            for name, space in study.spaces.items()
        }
        self._records: dict[str, Record] = {}
        self._named: set[str] = set()

    def begin(self) -> list[Trial]:
        """The trials that can be run first."""
        return [trial for dataset in self._study.datasets for trial in self._advanced(dataset.name)]

    def end(self, trial: Trial, record: Record) -> list[Trial]:
        """Take note of what a trial came to; the trials that can be run now, and could not before."""
        self._records[trial.name] = record
        return self._advanced(trial.dataset)

    def winners(self) -> dict[tuple[str, str], Point]:
        """The chosen points by data set and algorithm, so far."""
        return {key: cell.winner for key, cell in self._cells.items() if cell.winner is not None}

    def lost(self) -> list[str]:
        """What to say of algorithms of which nothing could be chosen."""
        return [
            f"{name} on {dataset}: no point has a finite {self._study.table.select_by} everywhere, nor one to inherit "
            "from, so it has no winner"
            for (dataset, name), cell in self._cells.items()
            if cell.lost
        ]

    def planned(self) -> dict[tuple[str, str], int]:
        """How many trials each data set and algorithm has, those that are not known yet included."""
        finals, tuning = self._study.finals, self._study.tuning
        beyond = len(set(finals) - set(tuning))
        counts = {}
        for (dataset, name), cell in self._cells.items():
            size = cell.space.size
            whole = len(finals) if size == 1 else size * len(tuning) + beyond
            counts[dataset, name] = len(cell.trials) if cell.lost else whole
        return counts

    def table(self) -> pa.Table:
        """A row a trial that has ended, in an order that does not depend on when they did."""
        keys = [(dataset.name, name) for dataset in self._study.datasets for name in self._study.names]
        rows = [
            self._row(trial, cell)
            for cell in map(self._cells.__getitem__, keys)
            for trial in cell.trials
            if trial.name in self._records
        ]
        return pa.Table.from_pylist(rows, schema(self._columns))

    def standing(self) -> Standing:
        """How the study stands."""
        table = self._study.table
        return Standing(self.table(), self.planned(), str(table.select_by), str(table.metric))

    def _row(self, trial: Trial, cell: Cell) -> dict[str, object]:
        record, split = self._records[trial.name], trial.split
        return {
            "dataset": trial.dataset,
            "algorithm": trial.algorithm,
            "point": trial.point,
            "seed": split.seed,
            "fold": split.fold,
            "validation": split.validation,
            "stage": "final" if trial in cell.final else "search",
            "chosen": cell.winner is not None and trial.point == written(cell.winner),
            "status": record.status,
            "trial": trial.name,
            "seconds": record.seconds,
            "rounds": record.rounds,
            **record.metrics,
        }

    def _advanced(self, dataset: str) -> list[Trial]:
        """Take every step that the records allow on a data set; the trials that are new."""
        known: list[Trial] = []
        for name in self._study.spaces:  # those that others inherit from come first
            cell = self._cells[dataset, name]
            if not cell.points and not cell.lost:
                self._open(cell)
                known += [trial for _, trial in cell.search]
            if cell.search and cell.winner is None and not cell.lost and self._searched(cell):
                self._choose(cell)
            if cell.winner is not None and not cell.final:
                cell.final = [self._trials.of(cell.dataset, name, cell.winner, split) for split in self._study.finals]
                known += cell.final
        new = [trial for trial in known if trial.name not in self._named]
        self._named.update(trial.name for trial in new)
        return new

    def _open(self, cell: Cell) -> None:
        """Work out the points, once all that the algorithm inherits from have winners."""
        sources = [self._cells[cell.dataset.name, source.algorithm] for source in cell.space.inherit.values()]
        if any(source.lost for source in sources):
            cell.lost = True
        elif all(source.winner is not None for source in sources):
            cell.points = cell.space.points(
                cell.space.inherited({each.space.algorithm: self._values(each) for each in sources})
            )
            if len(cell.points) == 1:
                cell.winner = cell.points[0]
            else:
                cell.search = [
                    (number, self._trials.of(cell.dataset, cell.space.algorithm, point, split))
                    for number, point in enumerate(cell.points)
                    for split in self._study.tuning
                ]

    def _values(self, cell: Cell) -> Mapping[str, object]:
        """All hyper-parameters of a winner."""
        point = cell.winner or {}
        return cell.space.table(self._trials.experiment(cell.dataset, cell.space, point))

    def _searched(self, cell: Cell) -> bool:
        # The last ones end last: this is asked after each.
        return all(trial.name in self._records for _, trial in reversed(cell.search))

    def _choose(self, cell: Cell) -> None:
        """Choose the point with the best mean; of equal ones the first."""
        column = str(self._study.table.select_by)
        best: float | None = None
        for number, point in enumerate(cell.points):
            records = [self._records[trial.name] for of, trial in cell.search if of == number]
            mean = mean_of(records, column)
            if mean is not None and (best is None or is_better(column, mean, best)):
                best, cell.winner = mean, point
        cell.lost = cell.winner is None


def mean_of(records: Sequence[Record], column: str) -> float | None:
    """The mean of a column; None where one of the trials did not end, or has no finite value."""
    values = [record.metrics.get(column) if record.status == "done" else None for record in records]
    there = [value for value in values if value is not None and isfinite(value)]
    return float(np.mean(there)) if len(there) == len(values) else None


def schema(columns: Sequence[str]) -> pa.Schema:
    """Of `trials.parquet`; metrics are null where a trial did not end, or one is undefined."""
    texts = ("dataset", "algorithm", "point")
    return pa.schema(
        [
            *((name, pa.string()) for name in texts),
            *((name, pa.int64()) for name in ("seed", "fold", "validation")),
            ("stage", pa.string()),
            ("chosen", pa.bool_()),
            ("status", pa.string()),
            ("trial", pa.string()),
            ("seconds", pa.float64()),
            ("rounds", pa.int64()),
            *((name, pa.float64()) for name in columns),
        ]
    )
