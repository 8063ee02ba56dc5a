"""What the algorithms of a run have in common, and running one of them, or going on with it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from algorithms import DivergedError as AlgorithmDivergedError
from algorithms import begin
from raysim.common.errors import of_algorithm
from raysim.config.experiment import Experiment
from raysim.fleet.client_actors import ClientActors
from raysim.fleet.inline import InlineWorkplace
from raysim.fleet.worker_plan import WorkerPlan
from raysim.measures.columns import TWINS, columns_of
from raysim.measures.evaluate import Targets
from raysim.measures.twins import twins_of
from raysim.simulation.budget import rounds_of
from raysim.simulation.loop import Simulation
from raysim.simulation.stop import Stop
from raysim.store.algorithm_folder import AlgorithmFolder
from raysim.store.checkpoint import Checkpoints
from raysim.store.result import AlgorithmResult
from raysim.store.resume import own_modules, settings, summary_of
from raysim.watching.log import log_algorithm, logged
from raysim.watching.loggers.threads import LoggerThreads
from raysim.watching.progress import Watcher

LOG = logging.getLogger("raysim")


@dataclass(frozen=True)
class Job:
    """What the algorithms of a run have in common.

    Args:
        experiment: resolved.
        folder: of the run.
        place: where blocks run.
        targets: what is evaluated on.
        here: what the bytes depend on beside the experiment.
        watcher: is told what happens.
        loggers: are told of the rounds.
        stop: asks the run to stop.
        saved: called after each checkpoint.
    """

    experiment: Experiment
    folder: Path
    place: ClientActors | InlineWorkplace
    targets: Targets
    here: Mapping[str, str]
    watcher: Watcher
    loggers: LoggerThreads
    stop: Stop
    saved: Callable[[], None] = lambda: None

    def run(self, name: str, plan: WorkerPlan) -> AlgorithmResult:
        """Run one algorithm, or go on with it."""
        experiment, folder, watcher = self.experiment, self.folder / name, self.watcher
        tell = logged(watcher.notice)
        log_algorithm(name, plan.algorithm)
        if text := _idle(name, plan, self.place.workers):
            tell(text)
        measures = experiment.evaluate.measures
        identity = {**self.here, **settings(experiment, name)}
        checkpoints = Checkpoints(folder, plan.algorithm, identity, own_modules(experiment), self.saved)
        snapshot = checkpoints.newest(tell)
        done = snapshot.state.round if snapshot else 0
        if folder.exists():
            tell(f"{name}: goes on after round {done}" if done else f"{name}: begins anew")
        columns = [*self.targets.columns, *columns_of(measures)]
        files = AlgorithmFolder(folder, columns, checkpoints, done, self.loggers.round)
        self.loggers.begin(name, experiment.flat(name), done, files.rows())
        with (
            of_algorithm(name),
            closing(files),
            closing(self.place.fleet(plan, watcher.block, watcher.notice)) as fleet,
        ):
            rounds = _rounds(experiment, name, plan)
            wanted = [measure for measure in measures if measure not in TWINS]
            devices = experiment.devices.profile() if experiment.devices else None
            module = plan.module()
            state = begin(module, fleet, experiment.seed, rounds, wanted, devices)
            simulation = Simulation(
                name,
                plan.algorithm,
                fleet,
                self.targets,
                experiment.evaluate.selection,
                files,
                watcher,
                twins_of(measures, state, self.targets),
                experiment.checkpoint.every,
                self.stop,
            )
            try:
                state, result = simulation.run(state, rounds, experiment.evaluate.every, snapshot)
            except AlgorithmDivergedError as error:
                files.stop({"stopped": str(error), "algorithm": repr(plan.algorithm), "fingerprint": self.here})
                raise
            summary = summary_of(result, experiment.evaluate.target, self.here)
            summary["machine_traffic"] = traffic = fleet.by_node()
            for node, each in traffic.items():
                LOG.info("%s: node %s: %d bytes in, %d bytes out", name, node, each["bytes_in"], each["bytes_out"])
            files.finish(state, fleet.layouts, summary, module.state_dict())
        self.loggers.end(result.totals)
        return result


def _rounds(experiment: Experiment, name: str, plan: WorkerPlan) -> int:
    """How many rounds an algorithm has; with a budget of epochs it depends on what its visits do."""
    if experiment.epochs is None:
        return experiment.rounds or 0
    rounds = rounds_of(experiment.epochs, plan.algorithm, plan.census)
    LOG.info("%s: %g epochs are %d rounds", name, experiment.epochs, rounds)
    return rounds


def _idle(name: str, plan: WorkerPlan, workers: int) -> str:
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
