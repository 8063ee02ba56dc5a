"""One algorithm of a run, from its first round or its checkpoint to its files."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch.nn import Module

from algorithms import DivergedError as AlgorithmDivergedError
from algorithms import Purpose, Robust, State, TrimmedMean, begin
from algorithms.rounds.timed import in_virtual_time
from raysim.common.errors import of_algorithm
from raysim.fleet.inline import InlineFleet, InlineWorkplace
from raysim.fleet.worker_plan import WorkerPlan
from raysim.measures.columns import columns_of
from raysim.measures.evaluate import evaluate
from raysim.measures.kinds import by_kind
from raysim.measures.twins import twins_of
from raysim.simulation.budget import rounds_of
from raysim.simulation.loop import run_rounds
from raysim.simulation.options import RunOptions
from raysim.simulation.plan import RunPlan
from raysim.simulation.records import Records
from raysim.store.algorithm_folder import AlgorithmFolder, client_facts
from raysim.store.checkpoint import Checkpoints
from raysim.store.location import RunLocation
from raysim.store.result import AlgorithmResult, RunProgress, Snapshot
from raysim.store.resume import own_modules, settings, shown, summary_of
from raysim.watching.log import log_algorithm, logged
from raysim.watching.loggers.threads import LoggerThreads
from raysim.watching.stopwatch import RoundSeconds

if TYPE_CHECKING:  # They import Ray, which a run in this process does not need.
    from raysim.fleet.client_actors import ClientActors
    from raysim.fleet.ray_fleet import RayFleet

LOG = logging.getLogger("raysim")


def run_algorithm(
    name: str,
    plan: RunPlan,
    place: ClientActors | InlineWorkplace,
    location: RunLocation,
    options: RunOptions,
    loggers: LoggerThreads,
) -> AlgorithmResult:
    """Run one algorithm, or continue it at its newest checkpoint.

    Args:
        name: folder of the algorithm in the run.
        plan: the run.
        place: place of work, this process or client actors.
        location: folder of the run.
        options: options of the run.
        loggers: loggers of the rounds.
    """
    experiment, workers, folder = plan.experiment, plan.workers[name], location.folder / name
    watcher, tell, spent = options.watcher, logged(options.watcher.notice), RoundSeconds()
    options.stopwatch.enter("files", name)
    log_algorithm(name, workers.algorithm)
    for text in _notices(workers, place.workers):
        tell(f"{name}: {text}")
    fingerprint = plan.fingerprint(place)
    identity, saved = {**fingerprint, **settings(experiment, name)}, location.after_checkpoint(watcher)
    checkpoints = Checkpoints(folder, workers.algorithm, identity, own_modules(experiment), saved)
    snapshot = checkpoints.newest(tell)
    done = snapshot.state.round if snapshot else 0
    if folder.exists():
        tell(f"{name}: continues after round {done}" if done else f"{name}: starts again")
    files = _files(folder, plan, checkpoints, spent.then(loggers.round))
    loggers.begin(name, experiment.flat(name), done, files.rows())
    with of_algorithm(name), closing(files), closing(place.fleet(workers, watcher.block, watcher.notice)) as fleet:
        module = workers.module()
        try:
            snapshot = snapshot or _beginning(name, plan, module, fleet)
            state, result = _trained(name, plan, fleet, files, options, snapshot)
        except AlgorithmDivergedError as error:
            files.stop({"stopped": str(error), "algorithm": shown(workers.algorithm), "fingerprint": fingerprint})
            raise
        summary = summary_of(result, experiment.evaluate.target, fingerprint)
        scored = state, workers.algorithm, fleet, plan.targets, files.accounts(workers.census.clients)
        with workers.keyed(Purpose.OWN_RECORD, state.round):
            if workers.devices is not None:
                summary["kinds"] = by_kind(*scored)
            clients = None if plan.clients is None else plan.clients.table(*scored, files.of_clients)
        summary["machine_traffic"] = traffic = fleet.by_node()
        for node, sums in traffic.items():
            LOG.info("%s: node %s: %d bytes in, %d bytes out", name, node, sums["bytes_in"], sums["bytes_out"])
        files.finish(state, fleet.layouts, summary, module.state_dict(), clients)
        started = fleet.starting
    loggers.end(result.totals)
    options.stopwatch.split({"training": spent.training, "fleet": started, "evaluation": spent.evaluation})
    return result


def _files(
    folder: Path, plan: RunPlan, checkpoints: Checkpoints, written: Callable[[Mapping[str, Any]], object]
) -> AlgorithmFolder:
    """Return the output files of an algorithm: columns of its own metrics, and those of its options."""
    workers = plan.workers[folder.name]
    algorithm, measured = workers.algorithm, columns_of(plan.experiment.evaluate.measures)
    with workers.keyed(Purpose.OWN_RECORD):
        of_clients = client_facts(algorithm.folded, workers.census.clients, plan.experiment.seed)
    reports = algorithm.local.update is not None
    of_options = [column for option in algorithm.folded for column in option.columns]
    columns = list(dict.fromkeys([*plan.targets.columns, *measured, *of_options]))
    timed = any(in_virtual_time(phase, workers.devices) for phase in algorithm.phases)
    return AlgorithmFolder(folder, columns, checkpoints, written, reports, of_clients, timed)


def _beginning(name: str, plan: RunPlan, module: Module, fleet: InlineFleet | RayFleet) -> Snapshot:
    """Return the run before its first round."""
    workers, evaluation = plan.workers[name], plan.experiment.evaluate
    if (epochs := plan.experiment.epochs) is None:
        rounds = plan.experiment.rounds or 0
    else:
        rounds = rounds_of(epochs, workers.algorithm, workers.census)
        LOG.info("%s: %g epochs are %d rounds", name, epochs, rounds)
    state = begin(module, fleet, plan.experiment.seed, rounds)
    twins = tuple(twin.state for twin in twins_of(evaluation.measures, state, plan.targets))
    return Snapshot(state, RunProgress(AlgorithmResult(name, workers.algorithm), rounds, twins=twins))


def _trained(
    name: str,
    plan: RunPlan,
    fleet: InlineFleet | RayFleet,
    files: AlgorithmFolder,
    options: RunOptions,
    snapshot: Snapshot,
) -> tuple[State, AlgorithmResult]:
    """Run the rounds that are left; return the state of the model to be written, and the result."""
    state, progress, workers = snapshot.state, snapshot.progress, plan.workers[name]
    rounds, watcher = state.rounds or 0, options.watcher
    watcher.begin(name, rounds, workers.cohort, state.round)
    if not rounds:
        LOG.info("%s: no rounds; the initial model is evaluated and written", name)
        with workers.keyed(Purpose.OWN_RECORD):
            metrics = evaluate(state, workers.algorithm, fleet, plan.targets)
        return state, replace(progress.result, metrics=metrics)
    LOG.info("%s: rounds %d to %d, %d client updates each", name, state.round + 1, rounds, workers.cohort)
    records = Records(plan, fleet, files, watcher, snapshot)
    try:
        run_rounds(workers, fleet, records, state, options.stop)
        return records.finished()
    except BaseException:
        records.give_up()
        raise


def _notices(plan: WorkerPlan, workers: int) -> Iterator[str]:
    """Yield notices on rounds with fewer blocks than actors, and on a trimmed mean that trims none."""
    cohort, size = plan.cohort, plan.block_size(plan.cohort)
    blocks = -(-cohort // size)
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
