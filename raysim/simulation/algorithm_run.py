"""One algorithm of a run, from its first round or its checkpoint to its files."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import pyarrow as pa
from torch.nn import Module

from algorithms import Arrivals, Purpose, Robust, State, TrimmedMean, begin
from algorithms import DivergedError as AlgorithmDivergedError
from algorithms.rounds.timed import in_virtual_time
from raysim.common.errors import ModelsLostError, of_algorithm
from raysim.common.log import LOG
from raysim.common.names import CLIENTS
from raysim.fleet import RunFleet, Workplace
from raysim.fleet.worker_plan import WorkerPlan
from raysim.measures.each_client import by_kind
from raysim.measures.evaluate import evaluate
from raysim.measures.twins import twins_of
from raysim.simulation.failures import lost_again, repeat_after
from raysim.simulation.loop import run_rounds
from raysim.simulation.options import RunOptions
from raysim.simulation.plan import AlgorithmPlan, RunPlan
from raysim.simulation.records import Records
from raysim.store.algorithm_folder import AlgorithmFolder
from raysim.store.checkpoint import Checkpoints
from raysim.store.location import RunLocation
from raysim.store.result import AlgorithmResult, RunProgress, Snapshot
from raysim.store.resume import settings, shown, summary_of
from raysim.store.sources import OwnSources
from raysim.store.tables import tables_of
from raysim.watching.log import log_algorithm
from raysim.watching.loggers.threads import LoggerThreads
from raysim.watching.stopwatch import RoundSeconds

T = TypeVar("T")


@dataclass(frozen=True)
class StartedRun:
    """Run whose place of work has started: everything that its algorithms share.

    The fingerprint has facts beside the experiment that the bytes depend on: of the place, and of the population.
    """

    plan: RunPlan
    place: Workplace
    location: RunLocation
    options: RunOptions
    loggers: LoggerThreads
    fingerprint: dict[str, str]


def run_algorithm(run: StartedRun, plan: AlgorithmPlan) -> AlgorithmResult:
    """Run one algorithm, or continue it at its newest checkpoint."""
    name, workers, experiment = plan.name, plan.workers, run.plan.experiment
    folder, options, spent = run.location.folder / name, run.options, RoundSeconds()
    options.stopwatch.enter("files", name)
    log_algorithm(name, workers.algorithm)
    for text in _notices(workers, run.place.workers):
        options.tell(f"{name}: {text}")
    identity = {**run.fingerprint, **settings(experiment, name)}
    saved = run.location.after_checkpoint(options.watcher)
    checkpoints = Checkpoints(folder, workers.algorithm, identity, OwnSources.of(experiment), saved)
    snapshot = checkpoints.newest(options.tell)
    done = snapshot.state.round if snapshot else 0
    run.place.skip(done * workers.cohort)
    if folder.exists():
        options.tell(f"{name}: continues after round {done}" if done else f"{name}: starts again")
    files = _files(run, plan, checkpoints, spent.then(run.loggers.round))
    run.loggers.begin(name, experiment.flat(name), done, files.rows())
    watcher = options.watcher
    with (
        of_algorithm(name),
        closing(files),
        closing(run.place.fleet(workers, watcher.block, watcher.notice)) as fleet,
        options.stopwatch.divided(lambda: spent.parts(fleet.starting)),
    ):
        module = workers.module()
        try:
            snapshot = snapshot or _beginning(run.plan, plan, module, fleet)
            state, result = _trained(run, plan, fleet, files, snapshot)
        except AlgorithmDivergedError as error:
            ending = {"stopped": str(error), "algorithm": shown(workers.algorithm), "fingerprint": run.fingerprint}
            files.stop(ending)
            raise
        summary = summary_of(result, experiment.evaluate.target, run.fingerprint) | {"options": plan.of_options}
        kinds, clients = _scored(run.plan, plan, fleet, files, state, spent)
        summary |= kinds
        summary["machine_traffic"] = traffic = fleet.by_node()
        for node, sums in traffic.items():
            LOG.info("%s: node %s: %d bytes in, %d bytes out", name, node, sums["bytes_in"], sums["bytes_out"])
        with workers.keyed(Purpose.OWN_TABLES):
            tables, left_out = tables_of(workers.algorithm.folded, state, fleet)
        for text in left_out:
            LOG.warning("%s: %s", name, text)
            watcher.notice(f"{name}: {text}")
        tables |= {} if clients is None else {CLIENTS: clients}
        files.finish(state, fleet.layouts, summary, module.state_dict(), tables)
    run.loggers.end(result.totals)
    return result


def _files(
    run: StartedRun, plan: AlgorithmPlan, checkpoints: Checkpoints, written: Callable[[Mapping[str, Any]], object]
) -> AlgorithmFolder:
    """Return the output files of an algorithm."""
    algorithm = plan.workers.algorithm
    return AlgorithmFolder(
        run.location.folder / plan.name,
        plan.columns,
        checkpoints,
        written,
        plan.of_clients,
        reports=algorithm.local.update is not None,
        outcomes=any(in_virtual_time(phase, plan.workers.devices) for phase in algorithm.phases),
    )


def _beginning(run: RunPlan, plan: AlgorithmPlan, module: Module, fleet: RunFleet) -> Snapshot:
    """Return the run before its first round."""
    state = begin(module, fleet, run.experiment.seed, plan.rounds)
    twins = tuple(twin.state for twin in twins_of(run.experiment.evaluate.measures, state, run.targets))
    return Snapshot(state, RunProgress(AlgorithmResult(plan.name, plan.workers.algorithm), plan.rounds, twins=twins))


def _trained(
    run: StartedRun, plan: AlgorithmPlan, fleet: RunFleet, files: AlgorithmFolder, snapshot: Snapshot
) -> tuple[State, AlgorithmResult]:
    """Run the rounds that are left; return the state of the model to be written, and the result."""
    state, name, workers, watcher = snapshot.state, plan.name, plan.workers, run.options.watcher
    rounds = state.rounds or 0
    watcher.begin(name, rounds, workers.cohort, state.round)
    if not rounds:
        LOG.info("%s: no rounds; the initial model is evaluated and written", name)

        def initial() -> dict[str, float]:
            with workers.keyed(Purpose.OWN_RECORD):
                return evaluate(state, workers.algorithm, fleet, run.plan.targets)

        metrics = _repeated(name, initial)
        return state, replace(snapshot.progress.result, metrics=metrics)
    LOG.info("%s: rounds %d to %d, %d client updates each", name, state.round + 1, rounds, workers.cohort)
    records = Records(run.plan, fleet, files, watcher, snapshot)
    try:
        run_rounds(workers, fleet, records, state, run.options.stop)
        return records.finished()
    except BaseException:
        records.give_up()
        raise


def _scored(
    run: RunPlan, plan: AlgorithmPlan, fleet: RunFleet, files: AlgorithmFolder, state: State, spent: RoundSeconds
) -> tuple[dict[str, Any], pa.Table | None]:
    """Score the clients of the written model; return the summary's entry of their devices, and their table."""
    workers = plan.workers
    if workers.devices is None and run.clients is None:
        return {}, None
    arriving = [n for n, phase in enumerate(workers.algorithm.phases) if isinstance(phase.schedule, Arrivals)]
    accounts = files.accounts(workers.census.clients, arriving)
    scored = state, workers.algorithm, fleet, run.targets, accounts

    def score() -> tuple[dict[str, Any], pa.Table | None]:
        with workers.keyed(Purpose.OWN_RECORD, state.round):
            kinds = {} if workers.devices is None else {"kinds": by_kind(*scored)}
            return kinds, run.clients and run.clients.table(*scored, plan.of_clients)

    with spent.evaluating(lambda: fleet.starting):
        return _repeated(plan.name, score)


def _repeated(name: str, evaluation: Callable[[], T]) -> T:
    """Return the result of an evaluation; evaluate again if a node has taken values with it."""
    try:
        return repeat_after(
            ModelsLostError, evaluation, lambda text: LOG.warning("%s: %s; evaluating again", name, text)
        )
    except ModelsLostError as error:
        raise lost_again("evaluation", error) from error


def _notices(plan: WorkerPlan, workers: int) -> Iterator[str]:
    """Yield notices on rounds with fewer blocks than actors, and on a trimmed mean that trims none."""
    cohort, size, blocks = plan.cohort, plan.block_size(plan.cohort), plan.blocks
    if blocks < min(workers, cohort):
        yield (
            f"{cohort} client updates a round make {blocks} blocks of {size}, fewer than the {workers} actors; "
            "a smaller fleet.block uses more actors, but changes the bytes of the result"
        )
    robust = plan.algorithm.option(Robust)
    rule = None if robust is None else robust.rule
    if isinstance(rule, TrimmedMean) and rule.trim and not rule.cut(cohort):
        yield (
            f"server.trim = {rule.trim:g} of {cohort} models trims none; "
            f"set it to {1 / cohort:.2g} or more to trim some"
        )
