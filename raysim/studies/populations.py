"""Populations of a study: made once for each data set and seed of the partition, and shared by its trials."""

import json
import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory

from partitioning import Population
from partitioning.store.writing import remove_drafts
from raysim.common.errors import InputError
from raysim.common.files import text_sha256
from raysim.config.data import PREPARATION, ROW_KEYS
from raysim.config.experiment import Experiment
from raysim.simulation.plan import plan_run, targets_of
from raysim.simulation.population import population_of
from raysim.studies.file import Study, StudyData, first_points
from raysim.studies.trial import on_population, trial_of, view

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


def fitted(study: Study, populations: Populations) -> tuple[Study, list[str]]:
    """Return the study with its metric, and the columns that its trials measure; nothing is trained.

    Args:
        study: resolved study, perhaps without a metric.
        populations: population of each data set and seed of the partition.

    Raises:
        InputError: an algorithm does not fit a model or population, or a column is not measured.
    """
    columns: dict[str, None] = {}
    for dataset in study.datasets:
        try:
            columns |= dict.fromkeys(_measured(dataset, study, populations[dataset.name, study.finals[0].partition]))
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


def _measured(dataset: StudyData, study: Study, population: Population) -> list[str]:
    """Return the columns that are measured on a data set; check each algorithm as far as possible without training."""
    points, first = first_points(dataset, study.spaces), study.finals[0]
    columns: list[str] = []
    for space in study.spaces.values():
        base = on_population(space.at(dataset.raw, points[space.algorithm]), population.path)
        experiment = trial_of(dataset.name, space.algorithm, "", base, population, first).experiment
        clients = view(population, experiment)
        targets = targets_of(experiment, clients)
        columns = targets.columns
        wanted = {"study.metric": study.table.metric}
        if any(each.size > 1 for each in study.spaces.values()):
            wanted["study.select_by"] = study.table.select_by
        for key, column in wanted.items():
            if column is not None and column not in columns:
                validates = column.startswith("validation_")
                remedy = "set study.folds or partition.validation_clients, or name another" if validates else "name one"
                measured = ", ".join(columns[:12]) or "none"
                raise InputError(f"{key} = {column!r}: must be a column that is measured ({measured}); {remedy}")
        if not experiment.fleet.gpus_per_actor:
            with TemporaryDirectory() as scratch:
                plan_run(experiment.solved(LOG.warning), clients, targets, Path(scratch), experiment.names)
    return columns
