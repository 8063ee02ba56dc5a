"""The main loop: one algorithm's rounds on one fleet, their measures, and what they leave on disk."""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn

import numpy as np

from algorithms import Algorithm, RoundReport, State, next_round
from raysim.common.errors import ModelsLostError, RetriesSpentError, StoppedError
from raysim.fleet.inline import InlineFleet
from raysim.fleet.ray_fleet import RayFleet
from raysim.fleet.traffic import Traffic
from raysim.measures.evaluate import Evaluation, Targets, evaluate
from raysim.measures.selection import Selection
from raysim.measures.twins import Twin, verdict
from raysim.simulation.stop import Stop
from raysim.store.algorithm_folder import AlgorithmFolder
from raysim.store.result import AlgorithmResult, RunProgress, Snapshot
from raysim.watching.log import at_most_every
from raysim.watching.progress import Watcher

LOG = logging.getLogger("raysim")


REPLAYS = 3
"""How often, one after the other, rounds are done again after a merge because their models were lost."""

LOG_FIRST, LOG_SECONDS = 10, 10.0
"""So many rounds are logged, and later ones that were not evaluated only as often; `metrics.parquet` has all."""

LOGGED = ("accuracy", "loss", "miou")
"""What the names of columns end with that the log shows."""


@dataclass(frozen=True)
class Simulation:
    """One algorithm on one fleet.

    Args:
        name: its folder in the run.
        algorithm: its five parts.
        fleet: what runs the blocks.
        targets: what to evaluate on.
        selection: whose model is written, and when the run stops before its last round.
        files: where its rows and models go.
        watcher: is told what happens.
        twins: that train beside it.
        checkpoint_every: merges from one checkpoint to the next, at least.
        stop: tells when somebody asks it to stop.
    """

    name: str
    algorithm: Algorithm
    fleet: InlineFleet | RayFleet
    targets: Targets
    selection: Selection
    files: AlgorithmFolder
    watcher: Watcher
    twins: tuple[Twin, ...] = ()
    checkpoint_every: int = 1
    stop: Stop = field(default_factory=Stop)

    def run(
        self, state: State, rounds: int, every: int, snapshot: Snapshot | None = None
    ) -> tuple[State, AlgorithmResult]:
        """Do so many rounds, and evaluate after every so many and after the last; 0: only after the last.

        Args:
            state: before the first round.
            rounds: how many.
            every: after how many to evaluate.
            snapshot: where to go on; None to begin.

        Returns:
            the state that left the model to be written, and what the run came to.

        Raises:
            StoppedError: somebody asked it to stop.
            RetriesSpentError: models were lost again and again.
        """
        cohort = self.algorithm.schedule.size(len(self.fleet.census.clients))
        first = 1 + (snapshot.state.round if snapshot else 0)
        LOG.info("%s: rounds %d to %d, %d visits each", self.name, first, rounds, cohort)
        self.watcher.begin(self.name, rounds, cohort)
        records = Records(self, snapshot or self._beginning(state, rounds))
        if not rounds:
            metrics = evaluate(state, self.algorithm, self.fleet, self.targets)
            return state, replace(records.known.result, metrics=metrics)
        try:
            with self.stop.between_rounds():
                self._rounds(every, records)
            return records.finished(rounds)
        except BaseException:
            records.give_up()
            raise

    def _beginning(self, state: State, rounds: int) -> Snapshot:
        twins = tuple(twin.state for twin in self.twins)
        return Snapshot(state, RunProgress(AlgorithmResult(self.name, self.algorithm), rounds, twins=twins))

    def _rounds(self, every: int, records: Records) -> None:
        """Do the rounds that are left; where models are lost, those since the last merge again."""
        state, lost = records.snapshot.state, 0
        while True:
            try:
                if state.round >= records.known.last:
                    return records.write()
                if self.stop.asked:
                    records.stop()
                state = self._round(state, every, records)
            except ModelsLostError as error:
                lost += 1
                if lost > REPLAYS:
                    what = f"round {state.round + 1}: {error}, {lost} times one after the other"
                    raise RetriesSpentError(f"{what}; see to the nodes, and resume the run") from error
                state = records.recovered()
                LOG.warning("%s: %s; the rounds since round %d are done again", self.name, error, state.round)
            else:
                lost = lost if state.travelling_models else 0

    def _round(self, state: State, every: int, records: Records) -> State:
        number = state.round + 1
        last = number == records.known.last
        before, starting = self.fleet.traffic.copy(), self.fleet.starting
        # While this round's visits run, the one before is evaluated and written.
        state = next_round(state, self.algorithm, self.fleet, last=last, meanwhile=records.write)
        # A round that is done again was written the first time.
        if number > records.known.result.rounds:
            evaluated = last or bool(every and number % every == 0)
            records.add(state, self.fleet.traffic.since(before), self.fleet.starting - starting, evaluated)
        return state


@dataclass
class Pending:
    """A round that is done and not written: its evaluation and the twins' rounds are under way."""

    state: State
    report: RoundReport
    row: dict[str, Any]
    evaluated: bool
    evaluation: Evaluation | None = None


class Records:
    """What is known of the rounds: the last one waits for its evaluation, the others are written.

    Args:
        simulation: whose rounds they are.
        snapshot: where they begin.
    """

    def __init__(self, simulation: Simulation, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        """The run after the last merge that is written."""
        self.known = snapshot.known
        self._simulation = simulation
        self._pending: Pending | None = None
        self._aggregates = 0
        self._log_seldom = at_most_every(LOG_SECONDS)
        self._rewind_twins()

    def add(self, state: State, traffic: Traffic, starting: float, evaluated: bool) -> None:
        """Take note of a round that is done, and begin what belongs to it.

        Args:
            state: as the round left it.
            traffic: of the round.
            starting: seconds of it in which actors were started.
            evaluated: whether its model is to be evaluated.
        """
        if state.report is None:
            raise RuntimeError("a step left no report")
        stages = _stages(state.report, starting)
        row = {"round": state.round, "seconds": sum(stages.values()), **stages}
        row |= {"phase": state.report.phase, **_reported(state.report), **_measured(traffic)}
        row |= state.report.measures
        self._pending = Pending(state, state.report, row, evaluated)
        if state.phase != state.report.phase:
            self._tell(logging.INFO, f"phase {state.phase + 1} begins after round {state.round}")
        self._begin(self._pending)

    def write(self) -> None:
        """Complete the round that was added last by its evaluation and its twins', and write it."""
        if self._pending is None:
            return
        pending, row = self._pending, self._pending.row
        known = self._completed(pending)
        self._pending = None
        self._append(pending)
        self._log_round(row, pending.evaluated)
        self._tell_of_nonfinite(row["round"], pending.report)
        self.known = known
        if not pending.state.travelling_models:
            self._keep(Snapshot(replace(pending.state, report=None), self.known))
        self._simulation.watcher.round(row["round"], known.latest)

    def recovered(self) -> State:
        """After models were lost, where to go on: at the last merge that is known; what was begun since is dropped."""
        self._rewind_twins()
        if self._pending is not None and not self._pending.state.travelling_models:
            self._begin(self._pending)
            return self._pending.state
        self._pending = None
        return self.snapshot.state

    def stop(self) -> NoReturn:
        """Write the round that was added last, and where to go on, and end.

        Raises:
            StoppedError: always; it says after which round.
        """
        self.write()
        self._simulation.files.save(self.snapshot)
        raise StoppedError(f"stopped after round {self.known.result.rounds}")

    def finished(self, rounds: int) -> tuple[State, AlgorithmResult]:
        """The state that left the model to be written, and the result, of a run that was to have so many rounds."""
        if self.known.chosen is None:
            raise RuntimeError("the last round was not evaluated")
        done = self.known.result.rounds
        result = replace(self.known.result, stopped_early=done < rounds)
        if result.nonfinite:
            self._tell(logging.WARNING, f"in all {result.nonfinite} visits were not finite; visits.parquet names them")
        for text in self._simulation.selection.notices(result.history, done, done < rounds):
            self._tell(logging.INFO, text)
        return self.known.chosen, result

    def give_up(self) -> None:
        """Write the round that was added last without its evaluation: what was measured is kept."""
        if self._pending is not None:
            # The very error that ends the run may be the journal's.
            with suppress(Exception):
                self._append(self._pending)

    def _begin(self, pending: Pending) -> None:
        """Have a round's evaluation begin, and its twins."""
        simulation, started = self._simulation, time.perf_counter()
        if pending.evaluated:
            pending.evaluation = Evaluation(pending.state, simulation.algorithm, simulation.fleet, simulation.targets)
            pending.row["seconds_evaluate"] = time.perf_counter() - started
        for twin in simulation.twins:
            twin.begin(pending.state, simulation.algorithm, simulation.fleet)

    def _completed(self, pending: Pending) -> RunProgress:
        """Complete a round's row by what its evaluation and its twins have come to; what is known with it."""
        known, row = self.known, pending.row
        if pending.evaluation is not None:
            started = time.perf_counter()
            metrics = pending.evaluation.values()
            row |= metrics
            row["seconds_evaluate"] += time.perf_counter() - started
            known = self._selected(known, row["round"], metrics, pending.evaluation.state)
        twins, started = self._simulation.twins, time.perf_counter()
        for twin in twins:
            row |= twin.end(row)
        if twins:
            row["seconds_evaluate"] = row.get("seconds_evaluate", 0.0) + time.perf_counter() - started
        result = known.result.after(row)
        if "concordance" in row:
            result = replace(result, concordance=verdict(row["concordance"]))
        return replace(known, result=result, twins=tuple(twin.state for twin in twins))

    def _selected(self, known: RunProgress, number: int, metrics: dict[str, float], state: State) -> RunProgress:
        """What is known with an evaluation, and the state that it was of where that is the one to be kept."""
        selection, result = self._simulation.selection, known.result
        history = result.history.after(number, metrics, selection.targets)
        result, known = replace(result, history=history), replace(known, latest=metrics)
        if selection.takes(history, number):
            result = replace(result, metrics=metrics, model_round=number)
            known = replace(known, chosen=replace(state, report=None))
        # The next round is under way already, so the one after that is the last.
        last = min(known.last, number + 2) if selection.stops(history) else known.last
        return replace(known, result=result, last=last)

    def _append(self, pending: Pending) -> None:
        self._simulation.files.append(pending.row, pending.report)

    def _keep(self, snapshot: Snapshot) -> None:
        """Take note of a merge, and have a checkpoint written where it is time for one."""
        files, self.snapshot, self._aggregates = self._simulation.files, snapshot, self._aggregates + 1
        if self._aggregates >= self._simulation.checkpoint_every and files.due:
            files.save(snapshot)
            self._aggregates = 0
        saving = files.saving
        snapshot.state.personal.forget(snapshot.rounds | (saving.rounds if saving else set()))

    def _rewind_twins(self) -> None:
        for twin, state in zip(self._simulation.twins, self.known.twins, strict=True):
            twin.state = state

    def _log_round(self, row: Mapping[str, Any], evaluated: bool) -> None:
        """Log a round, unless it is one of many that were not evaluated."""
        if evaluated or row["round"] <= LOG_FIRST or self._log_seldom():
            columns = ["train_loss", *(name for name in self._simulation.targets.columns if name.endswith(LOGGED))]
            shown = "".join(f", {name} {row[name]:.4f}" for name in columns if row.get(name) is not None)
            LOG.info("%s: round %d in %.3f s%s", self._simulation.name, row["round"], row["seconds"], shown)

    def _tell_of_nonfinite(self, number: int, report: RoundReport) -> None:
        """Log the visits whose result was not finite; tell a person of the run's first."""
        wrong = [row for _, row, _ in report.updates if row.nonfinite]
        texts = [f"client {row.client} in round {number}: {row.nonfinite} is not finite" for row in wrong]
        for text in texts:
            LOG.warning("%s: %s", self._simulation.name, text)
        if texts and not self.known.result.nonfinite:
            policy = self._simulation.algorithm.local.nonfinite
            self._simulation.watcher.notice(f'{self._simulation.name}: {texts[0]}; local.nonfinite = "{policy}"')

    def _tell(self, level: int, text: str) -> None:
        LOG.log(level, "%s: %s", self._simulation.name, text)
        self._simulation.watcher.notice(f"{self._simulation.name}: {text}")


def _stages(report: RoundReport, starting: float) -> dict[str, float]:
    """The seconds of a round's stages, which add up to the round's; starting actors is no part of it.

    Visits run while the driver does other work: what was left to wait for says too little, and the whole too much.
    They took as long as the busiest actor worked, as far as that lies between the two.
    """
    seconds = dict(report.seconds)
    meanwhile, waited = seconds.pop("meanwhile"), max(0.0, seconds["train"] - starting)
    blocks = {block: machine for block, _, machine in report.updates}
    worked: defaultdict[float, float] = defaultdict(float)
    for machine in blocks.values():
        worked[machine["actor"]] += machine["seconds"]
    seconds["train"] = min(waited + meanwhile, max([waited, *worked.values()]))
    return {f"seconds_{stage}": taken for stage, taken in seconds.items()}


def _reported(report: RoundReport) -> dict[str, Any]:
    rows = [row.report for _, row, _ in report.updates if row.trained and row.report["labelled"]]
    losses, labels = [row["loss"] for row in rows], [row["labelled"] for row in rows]
    return {
        "aggregated": report.aggregated,
        "train_loss": float(np.average(losses, weights=labels)) if rows else None,
        "updates": len(report.updates),
        "nonfinite": sum(row.nonfinite is not None for _, row, _ in report.updates),
        "exchanges": report.exchanges,
        "bytes_up": report.bytes_up,
        "bytes_down": report.bytes_down,
        "simulated_seconds": report.measures.get("simulated_seconds"),
    }


def _measured(traffic: Traffic) -> dict[str, Any]:
    return {
        "machine_bytes_driver": traffic.driver,
        "machine_bytes_inlined": traffic.inlined,
        "machine_bytes_moved": traffic.moved,
        "machine_bytes_crossed": traffic.crossed,
    }
