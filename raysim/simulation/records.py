"""Records of a run's rounds: their rows, log lines and notices."""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from algorithms import Algorithm, RoundReport, State
from algorithms.core.report import DroppedUpdates
from raysim.fleet.inline import InlineFleet
from raysim.fleet.traffic import Traffic
from raysim.measures.accounting import Accountant, epsilon_of, told_if_slow
from raysim.measures.evaluate import Evaluation, Targets
from raysim.measures.selection import Selection
from raysim.measures.twins import Twin, verdict
from raysim.store.algorithm_folder import AlgorithmFolder
from raysim.store.result import AlgorithmResult, RunProgress
from raysim.watching.log import at_most_every
from raysim.watching.progress import Watcher

if TYPE_CHECKING:  # It imports Ray, which a run in this process does not need.
    from raysim.fleet.ray_fleet import RayFleet

LOG = logging.getLogger("raysim")

LOGGED_ROUNDS, LOG_SECONDS = 10, 10.0
"""First rounds that are all logged, and seconds between later log lines of rounds without an evaluation."""

LOGGED_METRICS = ("accuracy", "loss", "miou")
"""Endings of the columns that the log shows."""


@dataclass
class UnwrittenRound:
    """A finished round whose evaluation and twins are under way."""

    state: State
    report: RoundReport
    row: dict[str, Any]
    evaluated: bool
    evaluation: Evaluation | None = None


class Records:
    """Rows of the rounds: the last one waits for its evaluation, the others are written.

    Args:
        name: folder of the algorithm.
        algorithm: all phases of the algorithm.
        fleet: fleet that evaluates.
        targets: data to evaluate on.
        selection: rule that selects the model to be written, and that may end the run early.
        files: files of the algorithm.
        watcher: observer of the run.
        twins: models that train beside the run.
        progress: the run so far.
        accountant: accountant of differential privacy; None without it.
    """

    def __init__(
        self,
        name: str,
        algorithm: Algorithm,
        fleet: InlineFleet | RayFleet,
        targets: Targets,
        selection: Selection,
        files: AlgorithmFolder,
        watcher: Watcher,
        twins: Sequence[Twin],
        progress: RunProgress,
        accountant: Accountant | None = None,
    ) -> None:
        self.name = name
        self.progress = progress
        self._algorithm, self._fleet, self._targets, self._selection = algorithm, fleet, targets, selection
        self._files, self._watcher, self._twins = files, watcher, twins
        self._accountant = accountant
        self._unwritten: UnwrittenRound | None = None
        self._log_due = at_most_every(LOG_SECONDS)
        self._rewind_twins()

    def add(self, state: State, traffic: Traffic, starting: float, evaluated: bool) -> None:
        """Add a finished round, and begin its evaluation and its twins' rounds.

        Args:
            state: the run after the round.
            traffic: bytes that the round moved.
            starting: seconds of the round that were spent on starting actors.
            evaluated: whether to evaluate the model.
        """
        report = state.report
        if report is None:
            raise RuntimeError("the round left no report")
        stages = _stages(report, starting)
        row = {"round": state.round, "seconds": sum(stages.values()), **stages}
        row |= {"phase": report.phase, **_reported(report), **_moved(traffic), **report.measures}
        self._unwritten = UnwrittenRound(state, report, row, evaluated)
        if state.phase != report.phase:
            self._tell(logging.INFO, f"phase {state.phase + 1} begins after round {state.round}")
        self._evaluate(self._unwritten)

    def write(self) -> State | None:
        """Complete the round that was added last, and write it; return its state, or None if it was written before."""
        done = self._unwritten
        if done is None:
            return None
        progress = self._completed(done)
        self._unwritten = None
        self._files.append(done.row, done.report)
        self._log(done)
        self._tell_of_nonfinite(done)
        self.progress = progress
        return replace(done.state, report=None)

    def show(self) -> None:
        """Show the round that was written last to the watcher."""
        self._watcher.round(self.progress.result.rounds, self.progress.latest)

    def restart(self) -> State | None:
        """Drop everything under way after models were lost; return the last state if it is one of an aggregation.

        Its evaluation begins again. Otherwise the run has to go back to its last written aggregation.
        """
        self._rewind_twins()
        if self._unwritten is not None and not self._unwritten.state.travelling_models:
            self._evaluate(self._unwritten)
            return self._unwritten.state
        self._unwritten = None
        return None

    def finished(self, rounds: int) -> tuple[State, AlgorithmResult]:
        """Return the state of the model to be written, and the result.

        Args:
            rounds: rounds that the run was to have.
        """
        if self.progress.chosen is None:
            raise RuntimeError("the last round was not evaluated")
        done = self.progress.result.rounds
        result = replace(self.progress.result, stopped_early=done < rounds)
        if result.nonfinite:
            text = f"{result.nonfinite} client updates in total were not finite; updates.parquet names them"
            self._tell(logging.WARNING, text)
        deadline = self._algorithm.schedule.sample.reporting.deadline
        if deadline is not None and result.bytes_down and not result.bytes_up:
            text = f"no client update arrived within algorithm.deadline = {deadline}, so the model never changed"
            self._tell(logging.WARNING, f"{text}; set a longer deadline")
        for text in self._selection.notices(result.history, done, done < rounds):
            self._tell(logging.INFO, text)
        return self.progress.chosen, result

    def give_up(self) -> None:
        """Write the round that was added last without its evaluation, because the run ends with an error."""
        if self._unwritten is not None:
            # The journal itself may have caused the error.
            with suppress(Exception):
                self._files.append(self._unwritten.row, self._unwritten.report)

    def _evaluate(self, done: UnwrittenRound) -> None:
        """Begin the evaluation and the twins' rounds."""
        started = time.perf_counter()
        if done.evaluated:
            done.evaluation = Evaluation(done.state, self._algorithm, self._fleet, self._targets)
            done.row["seconds_evaluate"] = time.perf_counter() - started
        for twin in self._twins:
            twin.begin(done.state, self._algorithm, self._fleet)

    def _completed(self, done: UnwrittenRound) -> RunProgress:
        """Add the results of evaluation and twins to the row; return the progress with the round."""
        progress, row = self.progress, done.row
        if done.evaluation is not None:
            started = time.perf_counter()
            metrics = done.evaluation.values()
            row |= metrics
            if self._accountant is not None:
                with told_if_slow(self._accountant.by, partial(self._tell, logging.WARNING)):
                    row["epsilon"] = epsilon_of(done.state, self._accountant)
            row["seconds_evaluate"] += time.perf_counter() - started
            progress = self._selected(progress, row["round"], metrics, done.evaluation.state)
        started = time.perf_counter()
        for twin in self._twins:
            row |= twin.end(row)
        if self._twins:
            row["seconds_evaluate"] = row.get("seconds_evaluate", 0.0) + time.perf_counter() - started
        result = progress.result.after(row)
        if "concordance" in row:
            result = replace(result, concordance=verdict(row["concordance"]))
        return replace(progress, result=result, twins=tuple(twin.state for twin in self._twins))

    def _selected(
        self, progress: RunProgress, round_number: int, metrics: dict[str, float], state: State
    ) -> RunProgress:
        """Fold in an evaluation; keep its state if it is the selected one."""
        selection, result = self._selection, progress.result
        history = result.history.after(round_number, metrics, selection.targets)
        result, progress = replace(result, history=history), replace(progress, latest=metrics)
        if selection.takes(history, round_number):
            result = replace(result, metrics=metrics, model_round=round_number)
            progress = replace(progress, chosen=replace(state, report=None))
        # The next round is under way already, so the run ends after the one that follows it.
        last = min(progress.last, round_number + 2) if selection.stops(history) else progress.last
        return replace(progress, result=result, last=last)

    def _rewind_twins(self) -> None:
        for twin, state in zip(self._twins, self.progress.twins, strict=True):
            twin.state = state

    def _log(self, done: UnwrittenRound) -> None:
        """Log a round, unless it is one of many without an evaluation."""
        row = done.row
        if done.evaluated or row["round"] <= LOGGED_ROUNDS or self._log_due():
            columns = ["train_loss", *(name for name in self._targets.columns if name.endswith(LOGGED_METRICS))]
            shown = "".join(f", {name} {row[name]:.4f}" for name in columns if row.get(name) is not None)
            LOG.info("%s: round %d in %.3f s%s", self.name, row["round"], row["seconds"], shown)

    def _tell_of_nonfinite(self, done: UnwrittenRound) -> None:
        """Log the client updates that were not finite; show the user the first one of the run."""
        rows = done.report.updates
        wrong = [(int(client), what) for client, what in zip(rows.clients, rows.nonfinite, strict=True) if what]
        texts = [f"client {client} in round {done.state.round}: {what} is not finite" for client, what in wrong]
        for text in texts:
            LOG.warning("%s: %s", self.name, text)
        if texts and not self.progress.result.nonfinite:
            policy = self._algorithm.local.nonfinite
            self._watcher.notice(f'{self.name}: {texts[0]}; local.nonfinite = "{policy}"')

    def _tell(self, level: int, text: str) -> None:
        LOG.log(level, "%s: %s", self.name, text)
        self._watcher.notice(f"{self.name}: {text}")


def _stages(report: RoundReport, starting: float) -> dict[str, float]:
    """Return the seconds of a round's stages, which add up to the round's seconds; starting actors does not count.

    Client updates run while the driver does other work. The rest of the wait is less than they took, and both together
    may be more. They took as long as the busiest actor worked, within these two bounds.
    """
    seconds = dict(report.seconds)
    meanwhile, waited = seconds.pop("meanwhile"), max(0.0, seconds["train"] - starting)
    worked: defaultdict[float, float] = defaultdict(float)
    for machine in report.machine.values():
        worked[machine["actor"]] += machine["seconds"]
    seconds["train"] = min(waited + meanwhile, max([waited, *worked.values()]))
    return {f"seconds_{stage}": taken for stage, taken in seconds.items()}


def _reported(report: RoundReport) -> dict[str, Any]:
    rows = report.updates
    labels = np.where(rows.trained, rows.column("labelled"), 0.0)
    losses, labels = rows.column("loss")[labels > 0], labels[labels > 0]
    return {
        "aggregated": report.aggregated,
        "train_loss": float(np.average(losses, weights=labels)) if len(labels) else None,
        "updates": len(rows),
        "nonfinite": int((~rows.finite).sum()),
        "exchanges": report.exchanges,
        "bytes_up": report.bytes_up,
        "bytes_down": report.bytes_down,
        "simulated_seconds": report.measures.get("simulated_seconds"),
        **({} if report.dropped is None else _dropped(report.dropped)),
    }


def _dropped(dropped: DroppedUpdates) -> dict[str, Any]:
    late, vanished = dropped.count("late"), dropped.count("vanished")
    return {"late": late, "vanished": vanished, "samples_wasted": float(dropped.samples.sum())}


def _moved(traffic: Traffic) -> dict[str, Any]:
    return {
        "machine_bytes_driver": traffic.driver,
        "machine_bytes_inlined": traffic.inlined,
        "machine_bytes_moved": traffic.moved,
        "machine_bytes_crossed": traffic.crossed,
    }
