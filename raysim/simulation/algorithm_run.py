"""One algorithm of a run, from its first round or its checkpoint to its files."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch.nn import Module

from algorithms import Attack, Privacy, Purpose, Robust, State, TrimmedMean, begin
from algorithms import DivergedError as AlgorithmDivergedError
from algorithms.rounds.clock import on_clock
from raysim.common.errors import of_algorithm
from raysim.config.experiment import Experiment
from raysim.fleet.inline import InlineFleet, InlineWorkplace
from raysim.fleet.worker_plan import WorkerPlan
from raysim.measures.columns import columns_of
from raysim.measures.evaluate import Targets, evaluate
from raysim.measures.kinds import by_kind
from raysim.measures.twins import twins_of
from raysim.simulation.budget import rounds_of
from raysim.simulation.checkpoints import Recovery
from raysim.simulation.loop import run_rounds
from raysim.simulation.records import Records
from raysim.simulation.stop import Stop
from raysim.store.algorithm_folder import AlgorithmFolder
from raysim.store.checkpoint import Checkpoints
from raysim.store.result import AlgorithmResult, RunProgress, Snapshot
from raysim.store.resume import own_modules, settings, shown, summary_of
from raysim.watching.log import log_algorithm, logged
from raysim.watching.loggers.threads import LoggerThreads
from raysim.watching.progress import Watcher
from raysim.watching.stopwatch import RoundSeconds, Stopwatch

if TYPE_CHECKING:  # They import Ray, which a run in this process does not need.
    from raysim.fleet.client_actors import ClientActors
    from raysim.fleet.ray_fleet import RayFleet

LOG = logging.getLogger("raysim")


def run_algorithm(
    name: str,
    plan: WorkerPlan,
    *,
    experiment: Experiment,
    folder: Path,
    place: ClientActors | InlineWorkplace,
    targets: Targets,
    fingerprint: Mapping[str, str],
    watcher: Watcher,
    stopwatch: Stopwatch,
    loggers: LoggerThreads,
    stop: Stop,
    saved: Callable[[], None],
) -> AlgorithmResult:
    """Run one algorithm, or continue it at its newest checkpoint.

    Args:
        name: folder of the algorithm in the run.
        plan: plan of its workers.
        experiment: resolved experiment.
        folder: folder of the run.
        place: place of work, this process or client actors.
        targets: data to evaluate on.
        fingerprint: facts that the bytes depend on beside the experiment.
        watcher: observer of the run.
        stopwatch: stages of the command.
        loggers: loggers of the rounds.
        stop: request to stop.
        saved: called after each checkpoint.
    """
    tell = logged(watcher.notice)
    stopwatch.enter("files", name)
    spent = RoundSeconds()
    log_algorithm(name, plan.algorithm)
    for text in filter(None, (_too_few_blocks(name, plan, place.workers), _trims_none(name, plan))):
        tell(text)
    identity = {**fingerprint, **settings(experiment, name)}
    checkpoints = Checkpoints(folder / name, plan.algorithm, identity, own_modules(experiment), saved)
    snapshot = checkpoints.newest(tell)
    done = snapshot.state.round if snapshot else 0
    if (folder / name).exists():
        tell(f"{name}: continues after round {done}" if done else f"{name}: starts again")
    columns = [*targets.columns, *columns_of(experiment.evaluate.measures)]
    files = _files(folder / name, plan, columns, checkpoints, spent.then(loggers.round), experiment.seed)
    loggers.begin(name, experiment.flat(name), done, files.rows())
    with of_algorithm(name), closing(files), closing(place.fleet(plan, watcher.block, watcher.notice)) as fleet:
        module = plan.module()
        try:
            state, result = _simulate(name, plan, module, experiment, fleet, targets, files, watcher, stop, snapshot)
        except AlgorithmDivergedError as error:
            files.stop({"stopped": str(error), "algorithm": shown(plan.algorithm), "fingerprint": fingerprint})
            raise
        summary = summary_of(result, experiment.evaluate.target, fingerprint)
        if plan.devices is not None:
            with plan.keyed(Purpose.OWN_RECORD, state.round):
                summary["kinds"] = by_kind(state, plan.algorithm, fleet, targets, files.accounts(plan.census.clients))
        summary["machine_traffic"] = traffic = fleet.by_node()
        for node, sums in traffic.items():
            LOG.info("%s: node %s: %d bytes in, %d bytes out", name, node, sums["bytes_in"], sums["bytes_out"])
        files.finish(state, fleet.layouts, summary, module.state_dict())
        started = fleet.starting
    loggers.end(result.totals)
    stopwatch.split({"training": spent.training, "fleet": started, "evaluation": spent.evaluation})
    return result


def _files(
    folder: Path,
    plan: WorkerPlan,
    columns: list[str],
    checkpoints: Checkpoints,
    written: Callable[[Mapping[str, Any]], object],
    seed: int,
) -> AlgorithmFolder:
    """Return the output files of an algorithm: columns of its own metrics, and its attackers if there are any."""
    algorithm = plan.algorithm
    attack, clients = algorithm.option(Attack), plan.census.clients
    attackers = None if attack is None else attack.attackers(clients, seed).tolist()
    reports = algorithm.local.update is not None
    private = ["epsilon"] if algorithm.option(Privacy) else []
    timed = any(on_clock(phase, plan.devices) for phase in algorithm.phases)
    return AlgorithmFolder(folder, [*columns, *private], checkpoints, written, reports, attackers, timed)


def _simulate(
    name: str,
    plan: WorkerPlan,
    module: Module,
    experiment: Experiment,
    fleet: InlineFleet | RayFleet,
    targets: Targets,
    files: AlgorithmFolder,
    watcher: Watcher,
    stop: Stop,
    snapshot: Snapshot | None,
) -> tuple[State, AlgorithmResult]:
    """Run the rounds that are left; return the state of the model to be written, and the result."""
    evaluation = experiment.evaluate
    rounds = _rounds(experiment, name, plan)
    state = begin(module, fleet, experiment.seed, rounds)
    twins = twins_of(evaluation.measures, state, targets)
    if snapshot is None:
        progress = RunProgress(AlgorithmResult(name, plan.algorithm), rounds, twins=tuple(twin.state for twin in twins))
        snapshot = Snapshot(state, progress)
    cohort = plan.algorithm.schedule.size(len(fleet.census.clients))
    watcher.begin(name, rounds, cohort, min(rounds, snapshot.state.round))
    if not rounds:
        LOG.info("%s: no rounds; the initial model is evaluated and written", name)
        with plan.keyed(Purpose.OWN_RECORD):
            metrics = evaluate(state, plan.algorithm, fleet, targets)
        return state, replace(snapshot.progress.result, metrics=metrics)
    LOG.info("%s: rounds %d to %d, %d client updates each", name, snapshot.state.round + 1, rounds, cohort)
    privacy = experiment.table(name).privacy
    accountant = None if privacy is None else privacy.accounts
    records = Records(
        name, plan.algorithm, fleet, targets, evaluation.selection, files, watcher, twins, snapshot.progress, accountant
    )
    recovery = Recovery(files, snapshot, experiment.checkpoint.every)
    try:
        every = evaluation.interval(rounds)
        run_rounds(plan.algorithm, fleet, records, recovery, every=every, stop=stop, keyed=plan.keyed)
        return records.finished(rounds)
    except BaseException:
        records.give_up()
        raise


def _rounds(experiment: Experiment, name: str, plan: WorkerPlan) -> int:
    """Return the number of rounds; a budget of epochs is converted by the length of the client updates."""
    if experiment.epochs is None:
        return experiment.rounds or 0
    rounds = rounds_of(experiment.epochs, plan.algorithm, plan.census)
    LOG.info("%s: %g epochs are %d rounds", name, experiment.epochs, rounds)
    return rounds


def _too_few_blocks(name: str, plan: WorkerPlan, workers: int) -> str:
    """Return a notice if rounds have fewer blocks than there are actors; otherwise nothing."""
    cohort = plan.cohort
    size = plan.block_size(cohort)
    blocks = -(-cohort // size)
    if blocks >= min(workers, cohort):
        return ""
    return (
        f"{name}: {cohort} client updates a round make {blocks} blocks of {size}, fewer than the {workers} actors; "
        "a smaller fleet.block uses more actors, but changes the bytes of the result"
    )


def _trims_none(name: str, plan: WorkerPlan) -> str:
    """Return a notice if a trimmed mean of so few models is their mean; otherwise nothing."""
    robust = plan.algorithm.option(Robust)
    rule = None if robust is None else robust.rule
    if not isinstance(rule, TrimmedMean) or not rule.trim or rule.cut(plan.cohort):
        return ""
    return (
        f"{name}: server.trim = {rule.trim:g} of {plan.cohort} models trims none; "
        f"set it to {1 / plan.cohort:.2g} or more to trim some"
    )
