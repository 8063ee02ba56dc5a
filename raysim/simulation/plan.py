"""Plan of a run: its experiment on its population, resolved once, and the workers of each algorithm."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import pyarrow as pa

from algorithms import InputError as AlgorithmInputError
from algorithms import Purpose, torch_seed
from algorithms.rounds.timed import check_virtual_time
from partitioning import Population
from partitioning.common.disk import write_whole
from partitioning.store.fetching import cached_folder
from partitioning.store.remote import is_uri
from raysim.common.errors import InputError
from raysim.common.log import LOG
from raysim.common.names import COLUMNS
from raysim.config.algorithm import AlgorithmTable
from raysim.config.experiment import Experiment
from raysim.config.model import ModelTable
from raysim.data.labels import LabelReader
from raysim.data.targets import label_kind
from raysim.devices.stored import open_devices
from raysim.fleet.model_plan import ModelPlan
from raysim.fleet.worker_plan import WorkerPlan
from raysim.measures.check import check_measures, measuring
from raysim.measures.columns import MEASURES, columns_of
from raysim.measures.each_client import EachClient
from raysim.measures.evaluate import Targets
from raysim.measures.scoring import check_metrics
from raysim.simulation.budget import check_updates, rounds_of
from raysim.simulation.samples import PreparedSamples, prepare_samples
from raysim.store.tables import check_columns, client_facts
from raysim.watching.log import log_model


@dataclass(frozen=True)
class AlgorithmPlan:
    """Algorithm of a run whose every setting is resolved.

    Args:
        name: its folder in the run.
        table: its table of the experiment, without a value of "auto".
        workers: plan of its workers.
        rounds: number of its rounds.
        columns: columns of its metrics that measures and options add.
        of_clients: ids of the training clients, and columns about them; see `client_facts`.
        of_options: sentences of its options on these clients.
    """

    name: str
    table: AlgorithmTable
    workers: WorkerPlan
    rounds: int
    columns: list[str]
    of_clients: pa.RecordBatch
    of_options: list[str]


@dataclass(frozen=True)
class RunPlan:
    """Run whose every setting is resolved: what its algorithms read.

    Args:
        experiment: experiment without a value of "auto", as `config.toml` holds it.
        population: fingerprint of the population.
        targets: data to evaluate on.
        clients: clients to score one by one; None for none.
        algorithms: plan of each algorithm, by its folder.
    """

    experiment: Experiment
    population: str
    targets: Targets
    clients: EachClient | None
    algorithms: Mapping[str, AlgorithmPlan]


def targets_of(experiment: Experiment, population: Population) -> Targets:
    """Return the data that an experiment evaluates on.

    Raises:
        InputError: the population lacks a wanted target, or a column is not measured.
    """
    evaluate, excluded = experiment.evaluate, experiment.excluded(population.train_clients)
    metrics = experiment.measured(label_kind(population.schema, population.manifest.label))
    targets = Targets.of(population, evaluate.on, metrics, evaluate.finetuning, excluded)
    evaluate.selection.check(targets.columns)
    return targets


def plan_run(
    experiment: Experiment,
    population: Population,
    targets: Targets,
    folder: Path,
    names: Sequence[str],
    device: str = "cpu",
    samples: PreparedSamples | None = None,
) -> RunPlan:
    """Resolve an experiment on its population, and plan the algorithms of these folders.

    The folder of the run receives the values that columns were encoded by.

    Raises:
        InputError: an algorithm does not fit the model, the population or a measure.
    """
    samples = samples or prepare_samples(population, experiment.data)
    if samples.columns is not None:
        with write_whole(folder / COLUMNS) as draft:
            draft.write_bytes(samples.columns)
    targets = replace(targets, shape=samples.whole)
    devices, sha256 = open_devices(experiment, folder, len(population.sizes))
    models: dict[tuple[str, int], ModelPlan] = {}
    workers = partial(_workers(experiment, samples), device=device, devices=devices)
    tables = dict(zip(experiment.names, experiment.algorithm, strict=True))
    algorithms: dict[str, AlgorithmPlan] = {}
    for name in names:
        table = tables[name]
        algorithm = experiment.composed(table, samples.labels).having(*measuring(experiment.evaluate.measures))
        labels = samples.labels.under(algorithm.local.loss)
        key = "" if table.model is None else name, labels.outputs
        if key not in models:
            models[key] = model_plan(table.model or experiment.model, experiment.seed, samples, labels)
        personal = (folder / name / "personal").absolute()
        plan = workers(model=models[key], algorithm=algorithm, personal=personal, joins=table.joins)
        try:
            algorithms[name] = _resolved(name, plan, table, experiment, targets)
        except (AlgorithmInputError, InputError) as error:
            raise InputError(f"{name}: {error}") from None
        tables[name] = algorithms[name].table
    resolved = experiment.resolved(targets.names, tuple(tables.values()), sha256)
    clients = EachClient.of(population, experiment.excluded(population.train_clients))
    scored = clients if experiment.evaluate.clients else None
    return RunPlan(resolved, population.fingerprint, targets, scored, algorithms)


def _workers(experiment: Experiment, samples: PreparedSamples) -> partial[WorkerPlan]:
    """Return `WorkerPlan` with what the workers of all algorithms have in common."""
    fleet, name, fetched = experiment.fleet, experiment.data.population or "", cached_folder(samples.digest)
    return partial(
        WorkerPlan,
        samples.path,
        block=fleet.block,
        fold=experiment.fold,
        validation=experiment.validation,
        standardise=samples.standardise,
        augment=samples.augment,
        digest=samples.digest,
        # Nodes fetch the population themselves only if training uses the fetched files.
        uri=name if is_uri(name) and samples.path == fetched else None,
        copies=fleet.copies and not fleet.pinned,
        here=() if fleet.pinned else None,
        own=experiment.seed if experiment.has_own_code else None,
    )


def _resolved(
    name: str, workers: WorkerPlan, table: AlgorithmTable, experiment: Experiment, targets: Targets
) -> AlgorithmPlan:
    """Resolve an algorithm; raise InputError if it does not fit the population, a measure or an option."""
    workers, evaluate = workers.resolved(), experiment.evaluate
    algorithm, layouts, census = workers.algorithm, workers.layouts, workers.census
    with workers.keyed(Purpose.OWN_RECORD):
        of_clients = client_facts(algorithm.folded, census, experiment.seed)
        described = [text for each in algorithm.folded if (text := each.describe(census.clients, experiment.seed))]
    for text in described:
        LOG.info("%s: %s", name, text)
    with workers.keyed(Purpose.OWN_TRIAL):
        check_metrics(targets.metrics, *workers.model.example)
    of_views = [f"{name}_{column}" for each in algorithm.folded for name in each.viewed for column in targets.columns]
    of_options = [column for phase in algorithm.phases for each in phase.folded for column in each.columns]
    columns = dict.fromkeys([*targets.columns, *columns_of(evaluate.measures), *of_options, *of_views])
    check_columns(algorithm, [*targets.columns, *columns_of(MEASURES), *of_views])
    check_virtual_time(algorithm, workers.devices)
    check_updates(algorithm, census, workers.lanes or 1)
    check_measures(evaluate.measures, targets, evaluate.interval(0), algorithm, layouts)
    for option in table.options:
        option.check_run(len(census.clients), evaluate.selection, targets.columns, layouts.has_own_models)
    rounds = experiment.rounds or 0
    if experiment.epochs is not None:
        rounds = rounds_of(experiment.epochs, algorithm, census)
        LOG.info("%s: %g epochs are %d rounds", name, experiment.epochs, rounds)
    table = table.computed(algorithm.local.compute)
    return AlgorithmPlan(name, table, workers, rounds, list(columns), of_clients, described)


def model_plan(table: ModelTable, seed: int, samples: PreparedSamples, labels: LabelReader) -> ModelPlan:
    """Return the plan of a model for the samples; `labels` is their reader under the algorithm's loss."""
    plan = ModelPlan(
        table.name,
        table.keys,
        samples.shape,
        labels.outputs,
        torch_seed(seed, Purpose.INITIALISE),
        table.own,
        whole=samples.whole,
        labels=labels,
    )
    log_model(plan.name, plan.parameters, plan.shape, plan.classes)
    if table.weights is not None:
        plan.build(LOG.info)
    return plan
