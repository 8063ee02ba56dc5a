"""Running an experiment: its population, its fleet, and each of its algorithms in turn."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

from algorithms import InputError as AlgorithmInputError
from algorithms import Purpose, begin, torch_seed
from raysim import report
from raysim.budget import rounds_of
from raysim.columns import TWINS, columns_of
from raysim.config import Experiment, changed, own, read
from raysim.config.experiment import AlgorithmTable, FleetTable
from raysim.errors import InputError, OutOfMemoryError, OwnCodeError, of_algorithm, one_input_error
from raysim.fleet import BenchPlan, ClientActors, FittedActors, Inline, ModelPlan, sent_whole, settled
from raysim.folder import AlgorithmFolder, algorithm_names, run_folder, run_log, write_config
from raysim.measures import Targets, check_measures, twins_of
from raysim.population import population_of
from raysim.preparing import Prepared, prepared
from raysim.progress import Watcher
from raysim.simulation import Result, Simulation

LOG = logging.getLogger("raysim")

Workplace = Callable[[], ClientActors | Inline]


@dataclass(frozen=True)
class Run:
    """A finished run: its folder, its report, and a result for each algorithm."""

    folder: Path
    report: Path
    results: tuple[Result, ...]


def run(
    config: str | Path | Mapping[str, Any],
    out: str | Path | None = None,
    *,
    changes: Iterable[str] = (),
    actors: int | None = None,
    inline: bool = False,
    address: str | None = None,
    watcher: Watcher | None = None,
) -> Run:
    """Run an experiment.

    Args:
        config: an experiment file, a recipe's name, or the same as a mapping, where `algorithm.name` may also be
            a function of one's own, and `model.name` a class.
        out: the run's folder, which must be new; default `runs/NAME-TIME`.
        changes: `key.path=value` each, applied to the file.
        actors: client actors, instead of the file's; never changes the result.
        inline: run in this process, without Ray; never changes the result.
        address: of a running Ray cluster; None starts Ray here.
        watcher: is told what happens.

    Raises:
        InputError: something of the input is wrong; nothing was left behind.
        OutOfMemoryError: a block does not fit the memory; what was written so far stays.
        OwnCodeError: a user's own part raised something on the way; what was written so far stays.
    """
    raw = changed(config, changes) if isinstance(config, Mapping) else read(config, changes)
    name = "run" if isinstance(config, Mapping) else Path(config).stem
    experiment = Experiment.of(raw, _folders(config))
    if inline and (actors is not None or address is not None):
        raise InputError(
            "--inline with --actors or --address: must stand alone, for it starts no actors; leave one out"
        )
    if actors is not None:
        if actors < 1:
            raise InputError(f"--actors = {actors}: must be a whole number >= 1; use --actors 1")
        fleet = experiment.fleet.model_copy(update={"actors": actors})
        experiment = experiment.model_copy(update={"fleet": fleet})
    folder = Path(out) if out is not None else Path("runs") / f"{name}-{datetime.now():%Y%m%d-%H%M%S}"
    threads = settled(experiment.fleet.cpus_per_actor)
    workplace = _workplace(experiment.fleet, inline, address)
    log = folder / "run.log"
    with run_folder(folder), run_log(log), one_input_error(), threads, _own_errors(experiment, log):
        results = _run(experiment, folder, workplace(), watcher or Watcher())
    # Outside, where nothing that goes wrong removes what was trained.
    return Run(folder, report.write([folder], folder / "report.html"), results)


@contextmanager
def _own_errors(experiment: Experiment, log: Path) -> Iterator[None]:
    """Within, what a user's own part raises becomes one line that says where; the log has the traceback."""
    try:
        yield
    except (InputError, AlgorithmInputError, OutOfMemoryError):
        raise
    except Exception as error:
        if text := own.told(error, experiment.own_code):
            raise OwnCodeError(f"your own code raised {text}; see {log}") from error
        raise


def _folders(config: str | Path | Mapping[str, Any]) -> tuple[Path, ...]:
    """Where a user's own modules may be: beside the experiment's file, and in the current folder."""
    here = Path.cwd()
    if isinstance(config, Mapping) or not Path(config).is_file():
        return (here,)
    return (Path(config).resolve().parent, here)


def _run(experiment: Experiment, folder: Path, place: ClientActors | Inline, watcher: Watcher) -> tuple[Result, ...]:
    """Run the algorithms one after the other; client actors start, in the background, once all input is checked."""
    watcher.stage("reading the data and partitioning it into clients")
    population = population_of(experiment, folder / "population")
    targets = Targets.of(population, experiment.evaluate.on, experiment.evaluate.metrics)
    experiment.evaluate.selection.check(targets.columns)
    samples = prepared(population, experiment.data)
    model = _model_plan(experiment, samples)
    experiment, plans = _plans(experiment, folder, samples, model, place.device)
    asked = experiment.evaluate
    for name, plan in plans.items():
        try:
            check_measures(asked.measures, targets, asked.every, plan.algorithm, plan.placement)
        except InputError as error:
            raise InputError(f"{name}: {error}") from None
    if not targets.targets:
        watcher.notice("there is nothing to evaluate on; set data.test, partition.test_clients or partition.local_test")
    write_config(folder / "config.toml", experiment.to_toml())
    LOG.info("%d clients, %d samples, %s", len(population), population.sizes.sum(), model)

    watcher.stage("starting the fleet")
    with sent_whole(experiment.own_code), place:
        place.fit(plans)
        LOG.info("fingerprint %s", place.fingerprint)
        results = tuple(
            _simulate(experiment, name, plan, folder, place, targets, watcher) for name, plan in plans.items()
        )
    watcher.stage("writing the report")
    return results


def _simulate(
    experiment: Experiment,
    name: str,
    plan: BenchPlan,
    folder: Path,
    place: ClientActors | Inline,
    targets: Targets,
    watcher: Watcher,
) -> Result:
    """Run one algorithm."""
    LOG.info("%s: %r", name, plan.algorithm)
    if text := _idle(name, plan, place.workers):
        watcher.notice(text)
    measures = experiment.evaluate.measures
    files = AlgorithmFolder(folder / name, [*targets.columns, *columns_of(measures)])
    with of_algorithm(name), closing(files), closing(place.fleet(plan, watcher.block)) as fleet:
        rounds = _rounds(experiment, name, plan)
        wanted = [measure for measure in measures if measure not in TWINS]
        devices = experiment.devices.profile() if experiment.devices else None
        module = plan.module()
        state = begin(module, fleet, experiment.seed, rounds, wanted, devices)
        twins, selection = twins_of(measures, state, targets), experiment.evaluate.selection
        simulation = Simulation(name, plan.algorithm, fleet, targets, selection, files, watcher, twins)
        state, result = simulation.run(state, rounds, experiment.evaluate.every)
        summary = _summary(result, experiment.evaluate.target, place.fingerprint)
        files.finish(state, fleet.placement, summary, module.state_dict())
    return result


def _rounds(experiment: Experiment, name: str, plan: BenchPlan) -> int:
    """How many rounds an algorithm has; with a budget of epochs it depends on what its visits do."""
    if experiment.epochs is None:
        return experiment.rounds or 0
    rounds = rounds_of(experiment.epochs, plan.algorithm, plan.census)
    LOG.info("%s: %g epochs are %d rounds", name, experiment.epochs, rounds)
    return rounds


def _idle(name: str, plan: BenchPlan, workers: int) -> str:
    """What to tell a person whose rounds have fewer blocks than there are actors; nothing otherwise."""
    cohort = plan.cohort
    size = plan.block_size(cohort)
    blocks = -(-cohort // size)
    if blocks >= min(workers, cohort):
        return ""
    return (
        f"{name}: {cohort} visits a round make {blocks} blocks of {size}, fewer than the {workers} actors; "
        "a smaller fleet.block uses more of them, and has its own bytes"
    )


def _plans(
    experiment: Experiment, folder: Path, samples: Prepared, model: ModelPlan, device: str
) -> tuple[Experiment, dict[str, BenchPlan]]:
    """A plan for each algorithm, and the experiment with what "auto" has come to.

    Raises:
        InputError: what would fail on the way: an algorithm does not fit the model or the population.
    """
    plans: dict[str, BenchPlan] = {}
    tables: list[AlgorithmTable] = []
    for name, table in zip(algorithm_names([t.name for t in experiment.algorithm]), experiment.algorithm, strict=True):
        kept = (folder / name / "kept").absolute()
        plan = BenchPlan(
            samples.path,
            model,
            table.compose(),
            kept,
            experiment.fleet.block,
            device,
            fold=experiment.fold,
            joins=table.joins,
            standardise=samples.standardise,
            augment=samples.augment,
        )
        try:
            plans[name] = plan.resolved()
        except AlgorithmInputError as error:
            raise InputError(f"{name}: {error}") from None
        tables.append(table.computed(plans[name].algorithm.local.compute.execution))
    return experiment.model_copy(update={"algorithm": tuple(tables)}), plans


def _workplace(table: FleetTable, inline: bool, address: str | None) -> Workplace:
    """What starts the place to work: this process, or client actors on Ray."""
    gpus = table.gpus_per_actor
    if inline and gpus:
        raise InputError(
            f"fleet.gpus_per_actor = {json.dumps(gpus)} with --inline: must be 0, for this process computes on the "
            "CPU; set fleet.gpus_per_actor = 0, or leave --inline out"
        )
    if inline:
        return Inline
    if gpus == "auto":
        return partial(FittedActors, table.actors, table.cpus_per_actor, address)
    actors = table.actors or max(1, (os.cpu_count() or 1) // table.cpus_per_actor)
    return partial(ClientActors, actors, table.cpus_per_actor, gpus, address)


def _model_plan(experiment: Experiment, samples: Prepared) -> ModelPlan:
    table, seed = experiment.model, torch_seed(experiment.seed, Purpose.INITIALISE)
    plan = ModelPlan(table.name, table.keys, samples.shape, samples.classes, seed, table.own)
    if table.weights is not None:
        plan.build(LOG.info)
    return plan


def _summary(result: Result, targets: Mapping[str, float], machine: Mapping[str, str]) -> dict[str, Any]:
    summary = asdict(result)
    standing = summary.pop("standing")
    rounds = {column: {"target": value, "round": standing["reached"].get(column)} for column, value in targets.items()}
    own = {"algorithm": repr(result.algorithm), "fingerprint": machine}
    return summary | {"best": standing["best"], "reached": rounds} | own
