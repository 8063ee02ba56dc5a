"""A trial: one algorithm at one point, on one data set, with one seed and one split; a run folder of its own."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pyarrow.parquet as pq

from partitioning import Population
from partitioning.common.disk import DiskFullError
from raysim.common.errors import DivergedError, InputError
from raysim.common.files import text_sha256
from raysim.config.data import PREPARATION, ROW_KEYS, STRENGTHS, DataTable
from raysim.config.experiment import Experiment
from raysim.config.read import read
from raysim.store.resume import read_result, settings
from raysim.store.run_folder import STOPPED, await_free, has_begun
from raysim.studies.file import DataSet, Split, Study
from raysim.studies.grid import Point, Space, written

if TYPE_CHECKING:
    from raysim.simulation.options import RunOptions

FREED_SECONDS = 30
"""How long a process that worked on a trial, and was killed, may take to be gone."""

Status = Literal["done", "diverged", "failed"]


@dataclass(frozen=True)
class Trial:
    """One run of a study.

    Args:
        dataset: its name in the study.
        algorithm: its folder's name in the study.
        point: the hyper-parameters that the study sets, as text.
        split: seed and folds.
        identity: sha256 of all that its bytes depend on, but for the machine.
        experiment: to run.
    """

    dataset: str
    algorithm: str
    point: str
    split: Split
    identity: str
    experiment: Experiment = field(compare=False, repr=False)

    @property
    def name(self) -> str:
        """Its folder's."""
        return f"{self.dataset}-{self.algorithm}-{self.identity[:12]}"


@dataclass(frozen=True)
class Record:
    """What a trial came to.

    Args:
        status: "diverged" where training gave NaN or infinity, "failed" where it could not be run to its end.
        seconds: of its rounds.
        rounds: done.
        metrics: of the model that it left; none but where it is done.
    """

    status: Status
    seconds: float = 0.0
    rounds: int = 0
    metrics: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Ending:
    """How an attempt at a trial ended: "wrong" input, or a "full" disk, ends the whole study."""

    status: Literal["done", "diverged", "failed", "wrong", "full"]
    text: str = ""


class Trials:
    """The trials of a study, each made from what it varies.

    Args:
        study: resolved.
        populations: of its data sets, as they are stored.
    """

    def __init__(self, study: Study, populations: Mapping[str, Population]) -> None:
        self._spaces, self._populations = study.spaces, populations
        self._experiments: dict[tuple[str, str, str], Experiment] = {}

    def of(self, dataset: DataSet, algorithm: str, point: Point, split: Split) -> Trial:
        """The trial of these."""
        text, population = written(point), self._populations[dataset.name]
        base = self.experiment(dataset, self._spaces[algorithm], point)
        folds = {} if split.fold is None else {"fold": split.fold, "validation": split.validation}
        experiment = base.model_copy(update={"seed": split.seed, "data": base.data.model_copy(update=folds)})
        content = {**settings(experiment, experiment.names[0]), "population": view(population, experiment).fingerprint}
        identity = text_sha256(json.dumps(content, sort_keys=True))
        return Trial(dataset.name, algorithm, text, split, identity, experiment)

    def experiment(self, dataset: DataSet, space: Space, point: Point) -> Experiment:
        """The experiment of an algorithm at a point, on the data set's population."""
        key = dataset.name, space.algorithm, written(point)
        if key not in self._experiments:
            experiment = space.at(dataset.raw, point)
            self._experiments[key] = on_population(experiment, self._populations[dataset.name].path)
        return self._experiments[key]


def on_population(experiment: Experiment, path: Path) -> Experiment:
    """The experiment on clients that are made: what chose, changed and dealt their rows is done."""
    data = experiment.data
    done = [key for key in DataTable.model_fields if key not in PREPARATION or key in ROW_KEYS]
    done += ["augment", *STRENGTHS] if data.appends else []
    if data.population is not None:
        return experiment
    reset = {key: DataTable.model_fields[key].default for key in done}
    made = data.model_copy(update={**reset, "population": str(path.resolve())})
    return experiment.model_copy(update={"data": made, "partition": None})


def view(population: Population, experiment: Experiment) -> Population:
    """The population as the experiment splits it."""
    fold = experiment.fold
    return population if fold is None else population.fold(fold, experiment.validation)


def attempt(config: Mapping[str, Any], folder: Path, how: RunOptions) -> Ending:
    """Run a trial, or go on with it.

    Args:
        config: the experiment.
        folder: the trial's.
        how: it is run.
    """
    # Late: they need Ray, and who only reads records does not.
    from raysim.simulation.api import begin, go_on, own_folders
    from raysim.store.location import RunLocation

    home = RunLocation(folder, str(folder))

    await_free(folder, FREED_SECONDS)
    try:
        if _goes_on(folder, config):
            go_on(home, how)
        else:
            if folder.exists():
                shutil.rmtree(folder)
            begin(Experiment.of(config, own_folders(config)), home, how)
    except DivergedError as error:
        return Ending("diverged", str(error))
    except InputError as error:
        return Ending("wrong", str(error))
    except DiskFullError as error:
        return Ending("full", str(error))
    except Exception as error:  # whatever happens in one trial: the others can be run
        return Ending("failed", f"{type(error).__name__}: {error}")
    return Ending("done")


def read_record(folder: Path, trial: Trial) -> Record | None:
    """What a trial has come to, by its folder; None where it has not ended."""
    name = trial.experiment.names[0]
    if (folder / name / STOPPED).is_file():
        seconds = pq.read_table(folder / name / "metrics.parquet", columns=["seconds"])["seconds"].to_pylist()
        return Record("diverged", sum(seconds), len(seconds))
    result = read_result(folder / name, trial.experiment)
    return None if result is None else Record("done", result.seconds, result.rounds, result.metrics)


def _goes_on(folder: Path, config: Mapping[str, Any]) -> bool:
    """Whether the trial has begun, on the population that it has now: a study's folder may have been moved."""
    return has_begun(folder) and read(folder / "config.toml")["data"]["population"] == config["data"]["population"]
