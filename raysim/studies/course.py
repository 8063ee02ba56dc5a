"""The course of a study: search each grid, choose the winners, pass their values on, run the winners everywhere."""

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pyarrow as pa

from raysim.config.experiment import Experiment
from raysim.studies.file import Study, StudyData
from raysim.studies.folder import LOST, VIRTUAL_TIME
from raysim.studies.grid import Point, SearchSpace, algorithm_table, point_json
from raysim.studies.populations import Populations, moved, searched_as
from raysim.studies.split import Split
from raysim.studies.statistics import best_point
from raysim.studies.trial import Trial, TrialResult, on_population, trial_of


@dataclass(frozen=True)
class StudyProgress:
    """State of a study; `raysim.study` returns the last one.

    Args:
        trials: trials that have ended, as in `trials.parquet`.
        planned: number of trials of each data set and algorithm, as far as known.
        winners: chosen hyper-parameters by data set and algorithm.
        select_by: column that the search compares.
        metric: column that the study reports.
    """

    folder: Path
    trials: pa.Table
    planned: Mapping[tuple[str, str], int]
    winners: Mapping[tuple[str, str], Point]
    select_by: str
    metric: str


@dataclass
class GridCell:
    """One algorithm on one data set.

    Args:
        dataset: the data set.
        space: hyper-parameters of the algorithm.
        points: points by their JSON; empty until all sources of inherited values have winners.
        experiments: experiment of each point.
        search: trials of the search; empty if there is only one point.
        winner: chosen point, as JSON.
        final: trials of the winner.
        lost: whether no point can be chosen, because trials or a source were lost.
    """

    dataset: StudyData
    space: SearchSpace
    points: dict[str, Point] = field(default_factory=dict)
    experiments: dict[str, Experiment] = field(default_factory=dict)
    search: list[Trial] = field(default_factory=list)
    winner: str | None = None
    final: list[Trial] = field(default_factory=list)
    lost: bool = False

    @property
    def trials(self) -> list[Trial]:
        """All known trials, each once; those of the search come first."""
        return list({trial.name: trial for trial in [*self.search, *self.final]}.values())


class Course:
    """State of a study and its next trials: a function of the results alone.

    Args:
        study: resolved study.
        populations: stored population of each data set and seed of the partition.
        columns: measured columns.
        searched: populations of the search, if its trials validate on the clients' own parts; by default the same.
    """

    def __init__(
        self, study: Study, populations: Populations, columns: Sequence[str], searched: Populations | None = None
    ) -> None:
        self._study, self._populations, self._columns = study, populations, columns
        self._searched = populations if searched is None else searched
        self._cut: set[str] = set()
        # A module that a trial in this process loads later must not change the identity of the others.
        self._modules = frozenset(sys.modules)
        self._cells = {
            (dataset.name, name): GridCell(dataset, space)
            for dataset in study.datasets
            for name, space in study.spaces.items()
        }
        self._results: dict[str, TrialResult] = {}
        self._named: set[str] = set()

    def begin(self) -> list[Trial]:
        """Return the first trials."""
        return [trial for dataset in self._study.datasets for trial in self._advanced(dataset.name)]

    def end(self, trial: Trial, result: TrialResult) -> list[Trial]:
        """Record a finished trial and return the trials that it unblocks."""
        cut = trial.name in self._cut
        self._results[trial.name] = replace(result, metrics=searched_as(result.metrics)) if cut else result
        return self._advanced(trial.dataset)

    def lost(self) -> dict[tuple[str, str], str]:
        """Return a sentence about each data set and algorithm without a winner."""
        found = {}
        for (dataset, name), cell in self._cells.items():
            reason = f"no point has a finite {self._study.table.select_by} in all its trials"
            if not cell.search:
                reason = "a source of its inherited values has no winner"
            if cell.lost:
                found[dataset, name] = f"{name} on {dataset}: no winner, because {reason}"
        return found

    def progress(self, folder: Path) -> StudyProgress:
        """Return the state of the study; rows do not depend on the order in which trials end."""
        cells = [self._cells[dataset.name, name] for dataset in self._study.datasets for name in self._study.names]
        finals = {trial.name for cell in cells for trial in cell.final}
        rows = [
            self._row(trial, cell, is_final=trial.name in finals)
            for cell in cells
            for trial in cell.trials
            if trial.name in self._results
        ]
        winners = {key: cell.points[cell.winner] for key, cell in self._cells.items() if cell.winner is not None}
        measured = {name for result in self._results.values() for name in result.metrics}
        times = sorted(name for name in measured if name.startswith(VIRTUAL_TIME))
        lost = {LOST: json.dumps([[*key, text] for key, text in self.lost().items()])}
        trials = pa.Table.from_pylist(rows, _schema([*self._columns, *times]).with_metadata(lost))
        table = self._study.table
        return StudyProgress(folder, trials, self._planned(), winners, str(table.select_by), str(table.metric))

    def _planned(self) -> dict[tuple[str, str], int]:
        """Return the number of trials of each data set and algorithm, including those not known yet."""
        finals, tuning = self._study.finals, self._study.tuning
        # A trial of the search counts for the table as well, unless it trained on a part of the clients' samples.
        beyond = len(finals if self._searched is not self._populations else set(finals) - set(tuning))
        counts = {}
        for key, cell in self._cells.items():
            size = cell.space.size
            whole = len(finals) if size == 1 else size * len(tuning) + beyond
            counts[key] = len(cell.trials) if cell.lost else whole
        return counts

    def _row(self, trial: Trial, cell: GridCell, *, is_final: bool) -> dict[str, object]:
        result, split = self._results[trial.name], trial.split
        return {
            "dataset": trial.dataset,
            "algorithm": trial.algorithm,
            "point": trial.point,
            "seed": split.seed,
            "fold": split.fold,
            "validation": split.validation,
            "partition_seed": split.partition,
            "stage": "final" if is_final else "search",
            "chosen": trial.point == cell.winner,
            "status": result.status,
            "trial": trial.name,
            "seconds": result.seconds,
            "rounds": result.rounds,
            **result.metrics,
        }

    def _advanced(self, dataset: str) -> list[Trial]:
        """Advance a data set as far as the results allow; return the new trials."""
        known: list[Trial] = []
        for name in self._study.spaces:  # sources of inherited values come first
            cell = self._cells[dataset, name]
            if not cell.points and not cell.lost:
                self._open(cell)
                known += cell.search
            if cell.search and cell.winner is None and not cell.lost:
                self._choose(cell)
            if cell.winner is not None and not cell.final:
                cell.final = [self._trial(cell, cell.winner, split, self._populations) for split in self._study.finals]
                known += cell.final
        new = [trial for trial in known if trial.name not in self._named]
        self._named.update(trial.name for trial in new)
        return new

    def _open(self, cell: GridCell) -> None:
        """Determine the points, once all sources of inherited values have winners."""
        sources = [self._cells[cell.dataset.name, algorithm] for algorithm, _ in cell.space.inherit.values()]
        if any(source.lost for source in sources):
            cell.lost = True
            return
        tables = {
            each.space.algorithm: algorithm_table(each.experiments[each.winner])
            for each in sources
            if each.winner is not None
        }
        if len(tables) < len({each.space.algorithm for each in sources}):
            return
        cell.points = {point_json(point): point for point in cell.space.points(cell.space.inherited(tables))}
        cell.experiments = {text: cell.space.at(cell.dataset.raw, point) for text, point in cell.points.items()}
        if len(cell.points) == 1:
            (cell.winner,) = cell.points
        else:
            cell.search = [
                self._trial(cell, text, split, self._searched) for text in cell.points for split in self._study.tuning
            ]
            if self._searched is not self._populations:
                self._cut.update(trial.name for trial in cell.search)

    def _trial(self, cell: GridCell, point: str, split: Split, populations: Populations) -> Trial:
        dataset, algorithm = cell.dataset.name, cell.space.algorithm
        population = populations[dataset, split.partition]
        experiment = on_population(cell.experiments[point], population.path)
        if populations is not self._populations:
            experiment = moved(experiment, population)
        return trial_of(dataset, algorithm, point, experiment, population, split, self._modules)

    def _choose(self, cell: GridCell) -> None:
        """Choose the point with the best mean, the first of equal ones, once all trials of the search have ended."""
        # Trials tend to end in order, so the last ones decide fastest.
        if not all(trial.name in self._results for trial in reversed(cell.search)):
            return
        column = str(self._study.table.select_by)
        values: dict[str, list[float | None]] = {text: [] for text in cell.points}
        for trial in cell.search:
            values[trial.point].append(self._results[trial.name].metrics.get(column))
        best = best_point(values, column)
        cell.winner, cell.lost = best and best[0], best is None


def _schema(columns: Sequence[str]) -> pa.Schema:
    """Return the schema of `trials.parquet`; a metric is null if the trial did not end well or it is undefined."""
    return pa.schema(
        [
            *((name, pa.string()) for name in ("dataset", "algorithm", "point")),
            *((name, pa.int64()) for name in ("seed", "fold", "validation", "partition_seed")),
            ("stage", pa.string()),
            ("chosen", pa.bool_()),
            ("status", pa.string()),
            ("trial", pa.string()),
            ("seconds", pa.float64()),
            ("rounds", pa.int64()),
            *((name, pa.float64()) for name in columns),
        ]
    )
