"""Populations of a study: made once for each data set and seed of the partition, and shared by its trials."""

import json
import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, product
from pathlib import Path
from tempfile import TemporaryDirectory

from partitioning import Population
from partitioning.common.paths import expanded
from partitioning.store.manifest import MANIFEST
from partitioning.store.training import training_part
from partitioning.store.writing import remove_drafts
from raysim.common.errors import InputError
from raysim.common.files import text_sha256
from raysim.config.data import PREPARATION, ROW_KEYS, DataTable
from raysim.config.experiment import Experiment
from raysim.data.catalogue import FILE
from raysim.simulation.plan import plan_run, targets_of
from raysim.simulation.population import population_of
from raysim.simulation.samples import prepare_samples
from raysim.studies.file import Study, StudyData, varied_points
from raysim.studies.keys import LOCAL_VALIDATION
from raysim.studies.trial import on_population, trial_of, view
from raysim.studies.words import MetricColumn

VALIDATIONS = (
    "set study.folds or partition.validation_clients, or for methods with personal models study.tune.local_validation"
)
"""Remedies for a study without anything to validate on."""

LOG = logging.getLogger("raysim.studies")


Populations = Mapping[tuple[str, int | None], Population]
"""Population by data set and seed of the partition; None is the file's own seed."""


def data_files(data: DataTable) -> Iterator[tuple[str, str, Path]]:
    """Yield the files of the user's own that `[data]` names: key, value and path of each."""
    for key, value in (("data.dataset", data.dataset), ("data.test", data.test)):
        if isinstance(value, str) and value.startswith(FILE):
            root = expanded("data.root", data.root or ".")
            names = [name.strip() for name in value.removeprefix(FILE).split(",")]
            yield from ((key, value, root / expanded(key, name)) for name in names if name)


def populations_of(
    study: Study, folder: Path, phase: Callable[[str], None], notice: Callable[[str], None]
) -> Populations:
    """Open the stored population of each data set and seed of the partition, or make it.

    Args:
        study: resolved study.
        folder: folder of the populations.
        phase: called before a population is made.
        notice: called once for each file that is newer than its population.

    Raises:
        InputError: the data or the partition are wrong.
    """
    folder.mkdir(exist_ok=True)
    remove_drafts(folder)
    populations: dict[tuple[str, int | None], Population] = {}
    newer: set[Path] = set()
    for dataset, seed in product(study.datasets, study.partitions):
        of_seed = "" if seed is None else f", seed {seed}"
        phase(f"{dataset.name}: reading the data and partitioning it into clients{of_seed}")
        experiment = dataset.experiment if seed is None else dataset.experiment.model_copy(update={"seed": seed})
        try:
            populations[dataset.name, seed] = _population(experiment, folder, study.table.folds or 0)
        except InputError as error:
            raise InputError(f"{dataset.name}: {error}") from None
        made = (populations[dataset.name, seed].path / MANIFEST).stat().st_mtime
        for _, _, file in data_files(dataset.experiment.data):
            if file not in newer and file.exists() and file.stat().st_mtime > made:
                newer.add(file)
                notice(
                    f"{file} is newer than the clients made from it, and the study keeps them; if its data have "
                    "changed, choose another --out"
                )
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
        InputError: a population cannot be read, or no client gets a validation sample.
    """
    cut = study.table.tune.local_validation
    if cut is None or all(space.size == 1 for space in study.spaces.values()):
        return populations
    found: dict[tuple[str, int | None], Population] = {}
    for (name, seed), population in populations.items():
        phase(f"{name}: cutting validation parts from the clients' training parts")
        cut_from = text_sha256(f"{population.fingerprint} {cut}")[:12]
        path = folder / f"{population.path.name}-local-validation-{cut_from}"
        made = Population.open(path) if path.exists() else training_part(population, path, local_test=cut)
        if not made.test_sizes.any():
            raise InputError(
                f"{name}: study.tune.local_validation = {cut:g}: must be a sample or more of a client's training part, "
                f"and the largest one has {made.sizes.max()}; raise it"
            )
        found[name, seed] = made
    return found


def moved(experiment: Experiment, population: Population) -> Experiment:
    """Return an experiment on another stored population."""
    data = experiment.data.model_copy(update={"population": str(population.path.resolve())})
    return experiment.model_copy(update={"data": data})


def searched_as(metrics: Mapping[str, float]) -> dict[str, float]:
    """Return a search trial's metrics by their columns: those of the clients' own parts are validation there."""
    ends = {name: name.removeprefix("local_") for name in metrics if name.startswith("local_")}
    return {f"{LOCAL_VALIDATION}{end}": metrics[name] for name, end in ends.items()}


def fitted(
    study: Study, populations: Populations, searched: Populations, phase: Callable[[str], None]
) -> tuple[Study, list[str]]:
    """Return the study with its metric, and the columns that its trials measure; nothing is trained.

    Args:
        study: resolved study, perhaps without a metric.
        populations: population of each data set and seed of the partition.
        searched: populations of the search.
        phase: called before the algorithms on a data set are checked, which may take seconds.

    Raises:
        InputError: an algorithm does not fit a model or population, a column is not measured, or no report can show it.
    """
    found: dict[str, list[list[str]]] = {}
    searching: list[str] = []
    for dataset in study.datasets:
        phase(f"{dataset.name}: checking the algorithms on these clients")
        try:
            measured = list(_measured(dataset, study, populations, searched))
        except InputError as error:
            raise InputError(f"{dataset.name}: {error}") from None
        found[dataset.name] = [columns for columns, _ in measured]
        searching += chain.from_iterable(columns for _, columns in measured)
    metric = study.table.metric or _default_metric(found)
    whole = replace(study, table=study.table.model_copy(update={"metric": metric}))
    _check_words(whole)
    return whole, list(dict.fromkeys([*chain.from_iterable(chain(*found.values())), *searching]))


def _check_words(study: Study) -> None:
    """Raise InputError if the report cannot name the reported or the compared column, which it does in any study."""
    for key, column in (("metric", study.table.metric), ("select_by", study.table.select_by)):
        try:
            MetricColumn.of(str(column))
        except InputError as error:
            raise InputError(f"study.{key}: {error}") from None


def _default_metric(found: Mapping[str, Sequence[Sequence[str]]]) -> str:
    """Return the first column that all trials measure: of the held-out clients, else of the test set, else another.

    Args:
        found: columns of the checked points, by data set.

    Raises:
        InputError: there is none.
    """
    names = {name: list(dict.fromkeys(chain.from_iterable(points))) for name, points in found.items()}
    every = list(dict.fromkeys(chain.from_iterable(names.values())))
    if not every:
        raise InputError(
            "study.folds = 0: must be 3 or more without held-out clients and without a test set, because nothing "
            "would be measured; set study.folds = 5"
        )
    # Validation clients choose the points, so they report only if nothing else is measured.
    tested = [column for column in every if not column.startswith("validation_")] or every
    common = [column for column in tested if all(column in columns for columns in chain(*found.values()))]
    if not common:
        each = "; ".join(f"{name}: {', '.join(columns[:6]) or 'none'}" for name, columns in names.items())
        raise InputError(
            f"study.metric: must be a column that all trials measure, and they have none in common ({each}); set "
            "study.folds = 5, or data.test for every data set"
        )
    return min(common, key=lambda column: (not column.startswith("held_out_"), not column.startswith("test_")))


def _measured(
    dataset: StudyData, study: Study, populations: Populations, searched: Populations
) -> Iterator[tuple[list[str], list[str]]]:
    """Yield the columns that each value of the grid measures, in the table's trials and in a search.

    Each value is checked as far as possible without training.
    """
    first, samples = study.finals[0], None
    population = populations[dataset.name, first.partition]
    for space, point in varied_points(dataset, study.spaces):
        base = on_population(point, population.path)
        experiment = trial_of(dataset.name, space.algorithm, "", base, population, first, ()).experiment
        clients = view(population, experiment)
        targets = targets_of(experiment, clients)
        columns = searching = targets.columns
        if searched is not populations:
            part = searched[dataset.name, study.tuning[0].partition]
            there = moved(experiment, part)
            searching = list(searched_as(dict.fromkeys(targets_of(there, view(part, there)).columns, 0.0)))
        _check_columns(study, columns, searching)
        if not experiment.fleet.gpus_per_actor:
            # All points have the same data, and to prepare these may mean to read them.
            samples = samples or prepare_samples(clients, experiment.data)
            solved = experiment.solved(LOG.warning)
            with TemporaryDirectory() as scratch:
                plan_run(solved, clients, targets, Path(scratch), experiment.names, samples=samples)
        yield columns, searching


def _check_columns(study: Study, columns: Sequence[str], searching: Sequence[str]) -> None:
    """Raise InputError if the table's trials lack the reported metric, or those of a search the compared one."""
    wanted = [("study.metric", study.table.metric, columns)]
    if any(each.size > 1 for each in study.spaces.values()):
        wanted.append(("study.select_by", study.table.select_by, searching))
    for key, column, there in wanted:
        if column is not None and column not in there:
            remedy = VALIDATIONS if column.startswith("validation_") else "name one"
            if column.startswith(LOCAL_VALIDATION) and not there:
                remedy = 'add "local" to evaluate.on, or leave that out'
            measured = ", ".join(there[:12]) or "none"
            raise InputError(f"{key} = {column!r}: must be a column that is measured ({measured}); {remedy}")
