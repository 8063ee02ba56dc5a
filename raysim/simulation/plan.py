"""Plan of a run: the workers of each algorithm, and the values of "auto"."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path

from algorithms import Devices, Purpose, torch_seed
from algorithms import InputError as AlgorithmInputError
from algorithms.rounds.clock import check_clock
from partitioning.store.fetching import cached_folder
from partitioning.store.remote import is_uri
from raysim.common.errors import InputError
from raysim.config.experiment import Experiment
from raysim.config.model import ModelTable
from raysim.data.labels import LABELS
from raysim.fleet.worker_plan import ModelPlan, WorkerPlan
from raysim.measures.accounting import told_if_slow
from raysim.measures.check import MEASURING, check_measures
from raysim.measures.evaluate import Targets
from raysim.measures.outside_epsilon import check_privacy
from raysim.simulation.budget import check_updates
from raysim.simulation.samples import PreparedSamples
from raysim.watching.log import log_model

LOG = logging.getLogger("raysim")


def plan_algorithms(
    experiment: Experiment,
    folder: Path,
    samples: PreparedSamples,
    targets: Targets,
    device: str,
    names: Sequence[str],
    devices: Devices | None = None,
    tell: Callable[[str], object] = LOG.warning,
) -> tuple[Experiment, dict[str, WorkerPlan]]:
    """Return the experiment with all values of "auto", and a plan for each algorithm.

    Args:
        experiment: experiment as its file has it.
        folder: folder of the run.
        samples: training samples.
        targets: data to evaluate on.
        device: "cpu" or "cuda".
        names: folders of the algorithms to plan.
        devices: devices of the clients in virtual time; None if that is not simulated.
        tell: called if solving for a noise takes long.

    Raises:
        InputError: an algorithm does not fit the model, the population or a measure.
    """
    plans: dict[str, WorkerPlan] = {}
    common, evaluate = model_plan(experiment.model, experiment.seed, samples), experiment.evaluate
    fleet = experiment.fleet
    with told_if_slow("pld", tell):
        solved = tuple(table.solved(experiment.rounds) for table in experiment.algorithm)
    experiment = experiment.model_copy(update={"algorithm": solved})
    tables = dict(zip(experiment.names, experiment.algorithm, strict=True))
    measures = [MEASURING[name]() for name in evaluate.measures if name in MEASURING]
    for name in names:
        table = tables[name]
        model = common if table.model is None else model_plan(table.model, experiment.seed, samples)
        personal = (folder / name / "personal").absolute()
        plan = WorkerPlan(
            samples.path,
            model,
            experiment.compose(name, _classes(experiment, samples)).having(*measures),
            personal,
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
            plan = plan.resolved()
            check_clock(plan.algorithm, plan.devices)
            check_updates(plan.algorithm, plan.census, plan.lanes or 1)
            check_measures(evaluate.measures, targets, evaluate.interval(0), plan.algorithm, plan.layouts)
            if table.privacy is not None:
                clients, own = len(plan.census.clients), plan.layouts.has_own_models
                check_privacy(table.privacy.delta, clients, evaluate.selection, targets.columns, own)
        except (AlgorithmInputError, InputError) as error:
            raise InputError(f"{name}: {error}") from None
        plans[name] = plan
        tables[name] = table.computed(plan.algorithm.local.compute.execution)
    return experiment.model_copy(update={"algorithm": tuple(tables.values())}), plans


def _classes(experiment: Experiment, samples: PreparedSamples) -> int | None:
    """Return the number of classes; None for other labels, which an attack on labels refuses."""
    if samples.labels.kind == "class":
        return samples.labels.outputs
    if experiment.attack is not None and experiment.attack.kind == "label-flip":
        raise InputError(
            f'attack.kind = "label-flip" with labels that are {LABELS[samples.labels.kind]}: must be classes of '
            'samples; set attack.kind = "sign-flip"'
        )
    return None


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
