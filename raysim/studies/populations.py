"""Populations of a study: made once for each data set and seed of the partition, and shared by its trials."""

import json
import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory

from partitioning import Population
from partitioning.store.training import training_part
from partitioning.store.writing import remove_drafts
from raysim.common.errors import InputError
from raysim.common.files import text_sha256
from raysim.config.data import PREPARATION, ROW_KEYS
from raysim.config.experiment import Experiment
from raysim.simulation.plan import plan_run, targets_of
from raysim.simulation.population import population_of
from raysim.simulation.samples import prepare_samples
from raysim.studies.file import Study, StudyData, varied_points
from raysim.studies.keys import LOCAL_VALIDATION
from raysim.studies.trial import on_population, trial_of, view

VALIDATIONS = (
    "set study.folds or partition.validation_clients, or for methods with personal models study.tune.local_validation"
)
"""Remedies for a study without anything to validate on."""

LOG = logging.getLogger("raysim.studies")


Populations = Mapping[tuple[str, int | None], Population]
"""Population by data set and seed of the partition; None is the file's own seed."""


def populations_of(study: Study, folder: Path, phase: Callable[[str], None]) -> Populations:
    """Open the stored population of each data set and seed of the partition, or make it.

    Args:
        study: resolved study.
        folder: folder of the populations.
        phase: called before a population is made.

    Raises:
        InputError: the data or the partition are wrong.
    """
    folder.mkdir(exist_ok=True)
    remove_drafts(folder)
    populations: dict[tuple[str, int | None], Population] = {}
    for dataset, seed in product(study.datasets, study.partitions):
        of_seed = "" if seed is None else f", seed {seed}"
        phase(f"{dataset.name}: reading the data and partitioning it into clients{of_seed}")
        experiment = dataset.experiment if seed is None else dataset.experiment.model_copy(update={"seed": seed})
        try:
            populations[dataset.name, seed] = _population(experiment, folder, study.table.folds or 0)
        except InputError as error:
            raise InputError(f"{dataset.name}: {error}") from None
    return populations


def _population(experiment: Experiment, folder: Path, folds: int) -> Population:
    if experiment.partition is not None:
        return population_of(experiment, folder / _name(experiment))
    population = Population.open(str(experiment.data.population))
    if folds and folds != population.manifest.splits.folds:
        raise InputError(
            f"study.folds = {folds}: must be the {population.manifest.splits.folds} that {population.path} has; set it"
        )
    return population


def _name(experiment: Experiment) -> str:
    """Return a population's folder: its data set, and a digest of everything that its bytes depend on."""
    config = experiment.to_toml()
    prepares = set(PREPARATION) - (set() if experiment.data.appends else set(ROW_KEYS))
    if experiment.data.appends:
        prepares = {"standardise"}
    rows = {key: value for key, value in config["data"].items() if key not in prepares}
    content = json.dumps({"seed": experiment.seed, "data": rows, "partition": config["partition"]}, sort_keys=True)
    called = re.sub(r"[^A-Za-z0-9._-]+", "-", Path(str(experiment.data.dataset)).name).strip("-.")
    return f"{called}-{text_sha256(content)[:12]}"


def search_populations(
    study: Study, populations: Populations, folder: Path, phase: Callable[[str], None]
) -> Populations:
    """Return the populations of the search: those given, or their clients' training parts, made here.

    Args:
        study: resolved study.
        populations: stored populations.
        folder: folder of the populations.
        phase: called before a population is made.

    Raises:
        InputError: a population cannot be read.
    """
    cut = study.table.tune.local_validation
    if cut is None or all(space.size == 1 for space in study.spaces.values()):
        return populations
    found: dict[tuple[str, int | None], Population] = {}
    for (name, seed), population in populations.items():
        phase(f"{name}: cutting validation parts from the clients' training parts")
        cut_from = text_sha256(f"{population.fingerprint} {cut}")[:12]
        path = folder / f"{population.path.name}-local-validation-{cut_from}"
        found[name, seed] = Population.open(path) if path.exists() else training_part(population, path, local_test=cut)
    return found


def moved(experiment: Experiment, population: Population) -> Experiment:
    """Return an experiment on another stored population."""
    data = experiment.data.model_copy(update={"population": str(population.path.resolve())})
    return experiment.model_copy(update={"data": data})


def searched_as(metrics: Mapping[str, float]) -> dict[str, float]:
    """Return a search trial's metrics by their columns: those of the clients' own parts are validation there."""
    ends = {name: name.removeprefix("local_") for name in metrics if name.startswith("local_")}
    return {f"{LOCAL_VALIDATION}{end}": metrics[name] for name, end in ends.items()}


def fitted(study: Study, populations: Populations, searched: Populations) -> tuple[Study, list[str]]:
    """Return the study with its metric, and the columns that its trials measure; nothing is trained.

    Args:
        study: resolved study, perhaps without a metric.
        populations: population of each data set and seed of the partition.
        searched: populations of the search.

    Raises:
        InputError: an algorithm does not fit a model or population, or a column is not measured.
    """
    columns: dict[str, None] = {}
    for dataset in study.datasets:
        try:
            for measured in _measured(dataset, study, populations, searched):
                columns |= dict.fromkeys(measured)
        except InputError as error:
            raise InputError(f"{dataset.name}: {error}") from None
    names = list(columns)
    held_out = [name for name in names if name.startswith("held_out_")]
    tested = [name for name in names if name.startswith("test_")]
    metric = study.table.metric or next(iter([*held_out, *tested, *names]), None)
    if metric is None:
        raise InputError(
            "study.folds = 0: must be 3 or more without held-out clients and without a test set, because nothing "
            "would be measured; set study.folds = 5"
        )
    return replace(study, table=study.table.model_copy(update={"metric": metric})), names


def _measured(dataset: StudyData, study: Study, populations: Populations, searched: Populations) -> Iterator[list[str]]:
    """Yield the columns that each value of the grid measures; check it as far as possible without training."""
    first, samples = study.finals[0], None
    population = populations[dataset.name, first.partition]
    for space, point in varied_points(dataset, study.spaces):
        base = on_population(point, population.path)
        experiment = trial_of(dataset.name, space.algorithm, "", base, population, first).experiment
        clients = view(population, experiment)
        targets = targets_of(experiment, clients)
        columns = targets.columns
        if searched is not populations:
            columns = columns + _searched_columns(dataset.name, study, experiment, searched)
        _check_columns(study, columns)
        if not experiment.fleet.gpus_per_actor:
            # All points have the same data, and to prepare these may mean to read them.
            samples = samples or prepare_samples(clients, experiment.data)
            solved = experiment.solved(LOG.warning)
            with TemporaryDirectory() as scratch:
                plan_run(solved, clients, targets, Path(scratch), experiment.names, samples=samples)
        yield columns


def _check_columns(study: Study, columns: Sequence[str]) -> None:
    """Raise InputError if the reported metric, or the one that a search compares, is none of the measured columns."""
    wanted = {"study.metric": study.table.metric}
    if any(each.size > 1 for each in study.spaces.values()):
        wanted["study.select_by"] = study.table.select_by
    for key, column in wanted.items():
        if column is not None and column not in columns:
            remedy = VALIDATIONS if column.startswith("validation_") else "name one"
            measured = ", ".join(columns[:12]) or "none"
            raise InputError(f"{key} = {column!r}: must be a column that is measured ({measured}); {remedy}")


def _searched_columns(name: str, study: Study, experiment: Experiment, searched: Populations) -> list[str]:
    """Return the columns of the search on the clients' own validation parts."""
    population = searched[name, study.tuning[0].partition]
    there = moved(experiment, population)
    return list(searched_as(dict.fromkeys(targets_of(there, view(population, there)).columns, 0.0)))
