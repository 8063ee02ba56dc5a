"""The populations of a study: made once for each data set, under the file's own seed, and shared by its trials."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from partitioning import Population
from raysim.common.errors import InputError
from raysim.common.files import text_sha256
from raysim.config.data import PREPARATION, ROW_KEYS
from raysim.config.experiment import Experiment
from raysim.measures.evaluate import Targets
from raysim.simulation.plan import planned
from raysim.simulation.population import population_of
from raysim.simulation.samples import prepared
from raysim.studies.file import DataSet, Study, first_points
from raysim.studies.trial import Trials, view


def populations_of(study: Study, folder: Path, tell: Callable[[str], None]) -> dict[str, Population]:
    """The populations by data set, as they are stored; those that are not there are made.

    Args:
        study: resolved.
        folder: where they are.
        tell: called before one is made.

    Raises:
        InputError: the data or the partition are not as they must be.
    """
    folder.mkdir(exist_ok=True)
    for draft in folder.glob(".*.draft"):
        shutil.rmtree(draft)
    populations = {}
    for dataset in study.datasets:
        tell(f"{dataset.name}: reading the data and partitioning it into clients")
        try:
            populations[dataset.name] = _population(dataset.experiment, folder, study.table.folds or 0)
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
    """The folder of a population: its data set, and a digest of all that its bytes depend on."""
    config = experiment.to_toml()
    prepares = set(PREPARATION) - (set() if experiment.data.appends else set(ROW_KEYS))
    if experiment.data.appends:
        prepares = {"standardise"}
    rows = {key: value for key, value in config["data"].items() if key not in prepares}
    content = json.dumps({"seed": experiment.seed, "data": rows, "partition": config["partition"]}, sort_keys=True)
    called = re.sub(r"[^A-Za-z0-9._-]+", "-", Path(str(experiment.data.dataset)).name).strip("-.")
    return f"{called}-{text_sha256(content)[:12]}"


def fitted(study: Study, populations: Mapping[str, Population], folder: Path) -> tuple[Study, list[str]]:
    """The study with its metric, and the columns that its trials measure; before anything is trained.

    Args:
        study: resolved but for that.
        populations: of its data sets.
        folder: of the study.

    Raises:
        InputError: an algorithm does not fit a model or population, or a column is not measured.
    """
    trials = Trials(study, populations)
    columns: dict[str, None] = {}
    for dataset in study.datasets:
        try:
            columns |= dict.fromkeys(_measured(dataset, study, trials, populations[dataset.name], folder))
        except InputError as error:
            raise InputError(f"{dataset.name}: {error}") from None
    names = list(columns)
    held_out = [name for name in names if name.startswith("held_out_")]
    tested = [name for name in names if name.startswith("test_")]
    metric = study.table.metric or next(iter([*held_out, *tested, *names]), None)
    if metric is None:
        raise InputError(
            "study.folds = 0: must be 3 or more where no clients are held out and there is no test set, for nothing "
            "is measured; set study.folds = 5"
        )
    return replace(study, table=study.table.model_copy(update={"metric": metric})), names


def _measured(dataset: DataSet, study: Study, trials: Trials, population: Population, folder: Path) -> list[str]:
    """The columns that are measured on a data set; each algorithm is tried as far as that takes no training."""
    points, first = first_points(dataset, study.spaces), study.finals[0]
    columns: list[str] = []
    for space in study.spaces.values():
        experiment = trials.of(dataset, space.algorithm, points[space.algorithm], first).experiment
        clients, evaluate = view(population, experiment), experiment.evaluate
        targets = Targets.of(clients, evaluate.on, evaluate.metrics)
        columns = targets.columns
        evaluate.selection.check(columns)
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
            samples = prepared(clients, experiment.data)
            planned(experiment, folder, samples, targets, "cpu", experiment.names)
    return columns
