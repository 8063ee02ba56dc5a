"""Plan of a run: its experiment on its population, resolved once, and the workers of each algorithm."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from algorithms import InputError as AlgorithmInputError
from algorithms import Purpose, torch_seed
from algorithms.rounds.timed import check_virtual_time
from partitioning import Population
from partitioning.store.fetching import cached_folder
from partitioning.store.remote import is_uri
from raysim.common.errors import InputError
from raysim.config.algorithm import AlgorithmTable
from raysim.config.experiment import Experiment
from raysim.config.model import ModelTable
from raysim.devices.stored import open_devices
from raysim.fleet.worker_plan import ModelPlan, WorkerPlan
from raysim.measures.check import check_measures, measuring
from raysim.measures.each_client import EachClient
from raysim.measures.evaluate import Targets
from raysim.simulation.budget import check_updates
from raysim.simulation.samples import PreparedSamples, prepare_samples
from raysim.store.algorithm_folder import client_facts
from raysim.watching.log import log_model

if TYPE_CHECKING:  # They import Ray, which a run in this process does not need.
    from raysim.fleet.client_actors import ClientActors
    from raysim.fleet.inline import InlineWorkplace

LOG = logging.getLogger("raysim")


@dataclass(frozen=True)
class RunPlan:
    """Run whose every setting is resolved: what its algorithms read.

    Args:
        experiment: experiment without a value of "auto", as `config.toml` holds it.
        population: fingerprint of the population.
        targets: data to evaluate on.
        clients: clients to score one by one; None for none.
        workers: plan of each algorithm's workers, by the algorithm's folder.
    """

    experiment: Experiment
    population: str
    targets: Targets
    clients: EachClient | None
    workers: Mapping[str, WorkerPlan]

    def fingerprint(self, place: ClientActors | InlineWorkplace) -> dict[str, str]:
        """Return the facts beside the experiment that the bytes of a run at a place depend on."""
        return {**place.fingerprint, "population": self.population}


def plan_run(
    experiment: Experiment,
    population: Population,
    targets: Targets,
    folder: Path,
    names: Sequence[str],
    device: str = "cpu",
    tell: Callable[[str], object] = LOG.warning,
) -> RunPlan:
    """Resolve an experiment on its population.

    Args:
        experiment: experiment as its file has it.
        population: population in the view of its fold.
        targets: data to evaluate on.
        folder: folder of the run.
        names: folders of the algorithms to plan.
        device: "cpu" or "cuda".
        tell: called if solving for a noise takes long.

    Raises:
        InputError: an algorithm does not fit the model, the population or a measure.
    """
    samples = prepare_samples(population, experiment.data)
    targets = replace(targets, shape=samples.whole)
    devices, sha256 = open_devices(experiment, folder, len(population.sizes))
    fleet, measures = experiment.fleet, measuring(experiment.evaluate.measures)
    common = model_plan(experiment.model, experiment.seed, samples)
    solved = [table.solved(experiment.rounds, tell) for table in experiment.algorithm]
    tables = dict(zip(experiment.names, solved, strict=True))
    workers: dict[str, WorkerPlan] = {}
    for name in names:
        table = tables[name]
        plan = WorkerPlan(
            samples.path,
            common if table.model is None else model_plan(table.model, experiment.seed, samples),
            experiment.composed(table, samples.labels).having(*measures),
            (folder / name / "personal").absolute(),
            fleet.block,
            device,
            fold=experiment.fold,
            validation=experiment.validation,
            joins=table.joins,
            standardise=samples.standardise,
            augment=samples.augment,
            digest=samples.digest,
            uri=_uri(experiment, samples),
            copies=fleet.copies and not fleet.pinned,
            here=() if fleet.pinned else None,
            devices=devices,
            own=experiment.seed if experiment.has_own_code else None,
        )
        try:
            workers[name] = plan = plan.resolved()
            _check(plan, experiment, table, targets)
        except (AlgorithmInputError, InputError) as error:
            raise InputError(f"{name}: {error}") from None
        tables[name] = table.computed(plan.algorithm.local.compute.execution)
    resolved = experiment.resolved(targets.names, tuple(tables.values()), sha256)
    clients = EachClient.of(population, experiment.excluded(population.train_clients))
    return RunPlan(resolved, population.fingerprint, targets, clients if experiment.evaluate.clients else None, workers)


def _check(plan: WorkerPlan, experiment: Experiment, table: AlgorithmTable, targets: Targets) -> None:
    """Raise InputError if an algorithm does not fit the population, a measure or an option."""
    evaluate, clients, own = experiment.evaluate, len(plan.census.clients), plan.layouts.has_own_models
    with plan.keyed(Purpose.OWN_RECORD):
        client_facts(plan.algorithm.folded, plan.census.clients, experiment.seed)
    check_virtual_time(plan.algorithm, plan.devices)
    check_updates(plan.algorithm, plan.census, plan.lanes or 1)
    check_measures(evaluate.measures, targets, evaluate.interval(0), plan.algorithm, plan.layouts)
    for option in table.options:
        option.check_run(clients, evaluate.selection, targets.columns, own)


def _uri(experiment: Experiment, samples: PreparedSamples) -> str | None:
    """Return the URI from which nodes fetch the population; None unless training uses the fetched files."""
    name, fetched = experiment.data.population or "", cached_folder(samples.digest)
    return name if is_uri(name) and samples.path == fetched else None


def model_plan(table: ModelTable, seed: int, samples: PreparedSamples) -> ModelPlan:
    """Return the plan of a model for the samples."""
    plan = ModelPlan(
        table.name,
        table.keys,
        samples.shape,
        samples.labels.outputs,
        torch_seed(seed, Purpose.INITIALISE),
        table.own,
        whole=samples.whole,
        labels=samples.labels,
    )
    log_model(plan.name, plan.parameters, plan.shape, plan.classes)
    if table.weights is not None:
        plan.build(LOG.info)
    return plan
