"""A trial: one algorithm at one point, on one data set, with one seed and one split; its run has its own folder."""

from __future__ import annotations

import json
from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from partitioning import Population
from partitioning.common.disk import DiskFullError
from partitioning.common.paths import read_parquet
from raysim.common.errors import DivergedError, InputError
from raysim.common.files import text_sha256
from raysim.common.names import CONFIG, STOPPED
from raysim.config.data import PREPARATION, ROW_KEYS, STRENGTHS, DataTable
from raysim.config.experiment import Experiment
from raysim.config.read import module_folders, read
from raysim.store.resume import read_result, settings
from raysim.store.run_folder import await_free, has_begun, remove_run
from raysim.store.sources import source_files
from raysim.store.summary import read_summary
from raysim.studies.folder import VIRTUAL_TIME
from raysim.studies.split import Split

if TYPE_CHECKING:
    from raysim.simulation.options import RunOptions

FREED_SECONDS = 30
"""Longest wait for the end of a killed process that worked on a trial."""

Ending = tuple[Literal["done", "diverged", "failed", "wrong", "full"], str]
"""End of an attempt, with an error text. Wrong input, or a full disk, ends the whole study."""


@dataclass(frozen=True)
class Trial:
    """One run of a study.

    Args:
        dataset: name of the data set in the study.
        algorithm: folder of the algorithm in the study.
        point: hyper-parameters that the study sets, as JSON.
        split: seed and folds.
        identity: sha256 of everything that its bytes depend on, except the machine.
        experiment: experiment to run.
    """

    dataset: str
    algorithm: str
    point: str
    split: Split
    identity: str
    experiment: Experiment = field(compare=False, repr=False)

    @property
    def name(self) -> str:
        """Name of its folder."""
        return f"{self.dataset}-{self.algorithm}-{self.identity[:12]}"


@dataclass(frozen=True)
class TrialResult:
    """Result of a trial.

    Args:
        status: "done"; "diverged" if training gave NaN or infinity; "failed" if the run broke off.
        seconds: time of its rounds.
        rounds: number of rounds done.
        metrics: metrics of its model, if it is done.
    """

    status: Literal["done", "diverged", "failed"]
    seconds: float = 0.0
    rounds: int = 0
    metrics: Mapping[str, float] = field(default_factory=dict)


def trial_of(
    dataset: str,
    algorithm: str,
    point: str,
    base: Experiment,
    population: Population,
    split: Split,
    modules: Container[str],
) -> Trial:
    """Return a trial.

    Args:
        dataset: name of the data set.
        algorithm: folder of the algorithm.
        point: hyper-parameters, as JSON.
        base: experiment of the algorithm at the point, on the population.
        population: clients, before they are split.
        split: seed and folds.
        modules: names of the modules whose files belong to the trial's identity, if they are the user's own.
    """
    folds = {} if split.fold is None else {"fold": split.fold, "validation": split.validation}
    experiment = base.model_copy(update={"seed": split.seed, "data": base.data.model_copy(update=folds)})
    of_code = source_files(module for module in experiment.own_code if module.__name__ in modules)
    of_data = {"population": view(population, experiment).fingerprint}
    content = {**settings(experiment, experiment.names[0]), **of_code, **of_data}
    identity = text_sha256(json.dumps(content, sort_keys=True))
    return Trial(dataset, algorithm, point, split, identity, experiment)


def on_population(experiment: Experiment, path: Path) -> Experiment:
    """Return the experiment on a stored population, without the keys that have made it."""
    data = experiment.data
    done = [key for key in DataTable.model_fields if key not in PREPARATION or key in ROW_KEYS]
    done += ["augment", *STRENGTHS] if data.appends else []
    if data.population is not None:
        return experiment
    reset = {key: DataTable.model_fields[key].default for key in done}
    made = data.model_copy(update={**reset, "population": str(path.resolve())})
    return experiment.model_copy(update={"data": made, "partition": None})


def view(population: Population, experiment: Experiment) -> Population:
    """Return the population with the experiment's fold held out."""
    fold = experiment.fold
    return population if fold is None else population.fold(fold, experiment.validation)


def attempt(config: Mapping[str, Any], folder: Path, options: RunOptions) -> Ending:
    """Run a trial, or resume it.

    Args:
        config: experiment of the trial.
        folder: folder of the trial.
        options: options of the run.
    """
    # Imported here: these need Ray, and reading results does not.
    from raysim.simulation.api import resume_experiment, run_experiment
    from raysim.store.location import RunLocation

    location = RunLocation(folder, str(folder))

    await_free(folder, FREED_SECONDS)
    try:
        # A study's folder may have been moved: a trial resumes on the present population alone.
        if has_begun(folder) and read(folder / CONFIG)["data"]["population"] == config["data"]["population"]:
            resume_experiment(location, options)
        else:
            experiment = Experiment.of(config, module_folders(config))
            if folder.exists():
                remove_run(folder, experiment.names)
            run_experiment(experiment, location, options)
    except DivergedError as error:
        return "diverged", str(error)
    except InputError as error:
        return "wrong", str(error)
    except DiskFullError as error:
        return "full", str(error)
    except Exception as error:  # one trial's error must not stop the others
        return "failed", f"{type(error).__name__}: {error}"
    return "done", ""


def read_trial_result(folder: Path, trial: Trial) -> TrialResult | None:
    """Read a trial's result from its folder; None if the trial has not ended."""
    name = trial.experiment.names[0]
    if (folder / name / STOPPED).is_file():
        read_summary(folder / name / STOPPED)
        seconds = read_parquet(folder / name / "metrics.parquet", columns=["seconds"])["seconds"].to_pylist()
        return TrialResult("diverged", sum(seconds), len(seconds))
    result = read_result(folder / name, trial.experiment)
    if result is None:
        return None
    times = {f"{VIRTUAL_TIME}{column}": seconds for column, seconds in result.reached_after.items()}
    return TrialResult("done", result.seconds, result.rounds, {**result.metrics, **times})
