"""Records of a run's rounds: their rows, log lines and notices."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NoReturn

import numpy as np

from algorithms import Purpose, RoundReport, State
from partitioning.common.errors import excerpt
from raysim.common.errors import StoppedError
from raysim.common.log import LOG
from raysim.fleet import RunFleet
from raysim.fleet.traffic import TRAFFIC
from raysim.measures.evaluate import Evaluation
from raysim.measures.selection import ROUNDS_AFTER
from raysim.measures.twins import twins_of, verdict
from raysim.simulation.plan import RunPlan
from raysim.store.algorithm_folder import AlgorithmFolder
from raysim.store.result import AlgorithmResult, RunProgress, Snapshot
from raysim.watching.log import at_most_every
from raysim.watching.progress import Watcher

LOGGED_ROUNDS, LOG_SECONDS = 10, 10.0
"""First rounds that are all logged, and seconds between later log lines of rounds without an evaluation."""

LOGGED_METRICS = ("accuracy", "loss", "miou")
"""Endings of the columns that the log shows."""


@dataclass
class UnwrittenRound:
    """Finished round whose evaluation or twins' rounds, if they are due, are under way; they complete its row."""

    state: State
    report: RoundReport
    row: dict[str, Any]
    is_evaluated: bool
    is_measured: bool
    evaluation: Evaluation | None = None


class Records:
    """Rows of the rounds of an algorithm: the last one waits for its evaluation, the others are written."""

    def __init__(
        self, plan: RunPlan, fleet: RunFleet, files: AlgorithmFolder, watcher: Watcher, snapshot: Snapshot
    ) -> None:
        self.name, self.progress = files.path.name, snapshot.progress
        self._fleet, self._files, self._watcher, self._targets = fleet, files, watcher, plan.targets
        algorithm = plan.algorithms[self.name]
        self._workers, self._rounds = algorithm.workers, snapshot.state.rounds or 0
        self._algorithm = algorithm.workers.algorithm
        evaluate, self._options = plan.experiment.evaluate, algorithm.table.options
        self._every, self._selection = evaluate.interval(self._rounds), evaluate.selection
        self._twins = twins_of(evaluate.measures, snapshot.state, plan.targets)
        self._snapshot = snapshot
        """The run after its last written aggregation, to go back to if models are lost."""
        self._checkpoint_every, self._aggregations = plan.experiment.checkpoint.every, 0
        self._logged = ["train_loss", *(name for name in plan.targets.columns if name.endswith(LOGGED_METRICS))]
        self._log_due = at_most_every(LOG_SECONDS)
        self._unwritten: UnwrittenRound | None = None
        self._counts = _counts(fleet)
        self._rewind_twins()

    def add(self, state: State) -> None:
        """Add a finished round, and begin its evaluation and its twins' rounds; leave out one that is written."""
        report = state.report
        if report is None:
            raise RuntimeError("the round left no report")
        if state.round > self.progress.result.rounds:
            row = {"round": state.round, "phase": report.phase, **_reported(report), **self._measured(report)}
            evaluates = state.round == self.progress.last or bool(self._every and state.round % self._every == 0)
            self._unwritten = done = UnwrittenRound(state, report, row, evaluates, evaluates or bool(self._twins))
            if state.phase != report.phase:
                self._tell(logging.INFO, f"phase {state.phase + 1} begins after round {state.round}")
            if done.is_measured:
                self._evaluate(done)
        self._counts = _counts(self._fleet)

    def write(self) -> None:
        """Complete the round that was added last, and write it; after an aggregation the run can go back to it."""
        done = self._unwritten
        if done is None:
            return
        progress = replace(self.progress, result=self.progress.result.after(done.row))
        if done.is_measured:
            progress = self._evaluated(done, progress)
        self._unwritten = None
        self._files.append(done.row, done.report)
        self._log(done)
        if done.row["nonfinite"]:
            self._tell_of_nonfinite(done)
        self.progress = progress
        if not done.state.travelling_models:
            self._keep(Snapshot(replace(done.state, report=None), progress))
        self._watcher.round(done.state.round, progress.latest)

    def stop(self) -> NoReturn:
        """Write the last round and a checkpoint, and end.

        Raises:
            StoppedError: always; it names the last round.
        """
        self.write()
        self._files.save(self._snapshot)
        raise StoppedError(f"stopped after round {self.progress.result.rounds}")

    def restart(self) -> State:
        """Drop everything under way after models were lost; return the state after the last aggregation."""
        self._rewind_twins()
        state, done = self._snapshot.state, self._unwritten
        if done is None or done.state.travelling_models:
            self._unwritten = None
        else:
            state = done.state
            if done.is_measured:
                self._evaluate(done)
        self._counts = _counts(self._fleet)
        return state

    def finished(self) -> tuple[State, AlgorithmResult]:
        """Return the state of the model to be written, and the result."""
        if self.progress.chosen is None:
            raise RuntimeError("the last round was not evaluated")
        done = self.progress.result.rounds
        result = replace(self.progress.result, stopped_early=done < self._rounds)
        if result.nonfinite:
            text = f"{result.nonfinite} client updates in total were not finite; updates.parquet names them"
            self._tell(logging.WARNING, text)
        deadline = self._algorithm.schedule.participation.reporting.deadline
        if deadline is not None and result.bytes_down and not result.bytes_up:
            text = f"no client update arrived within algorithm.deadline = {deadline}, so the model never changed"
            self._tell(logging.WARNING, f"{text}; set a longer deadline")
        if never := [column for column in self.progress.latest if column not in result.history.best]:
            text = f"{excerpt(never)}: NaN or infinite in every evaluation; check the metric, or lower local.lr"
            self._tell(logging.WARNING, text)
        for text in self._selection.notices(result.history, done, result.stopped_early):
            self._tell(logging.INFO, text)
        return self.progress.chosen, result

    def give_up(self) -> None:
        """Write the round that was added last without its evaluation, because the run ends with an error."""
        if self._unwritten is not None:
            # The journal itself may have caused the error.
            with suppress(Exception):
                self._files.append(self._unwritten.row, self._unwritten.report)

    def _measured(self, report: RoundReport) -> dict[str, float]:
        """Return the measured numbers of a round: seconds of its stages, bytes moved, and the measures taken.

        Client updates run while the driver does other work. The rest of the wait is less than they took, and both
        together may be more. They took as long as the busiest actor worked, within these two bounds. Starting actors
        does not count. The stages add up to the round's seconds.
        """
        moved = {name: now - self._counts[name] for name, now in _counts(self._fleet).items()}
        seconds, worked = dict(report.seconds), dict.fromkeys((each["actor"] for each in report.machine.values()), 0.0)
        meanwhile, waited = seconds.pop("meanwhile"), max(0.0, seconds["train"] - moved.pop("starting"))
        for machine in report.machine.values():
            worked[machine["actor"]] += machine["seconds"]
        seconds["train"] = min(waited + meanwhile, max([waited, *worked.values()]))
        stages = {f"seconds_{stage}": taken for stage, taken in seconds.items()}
        return {"seconds": sum(stages.values()), **stages, **moved, **report.measures}

    def _evaluate(self, done: UnwrittenRound) -> None:
        """Begin the evaluation, if it is due, and the twins' rounds."""
        started = time.perf_counter()
        if done.is_evaluated:
            with self._workers.keyed(Purpose.OWN_VIEWS, done.state.round):
                done.evaluation = Evaluation(done.state, self._algorithm, self._fleet, self._targets)
        for twin in self._twins:
            twin.begin(done.state, self._algorithm, self._fleet)
        done.row["seconds_evaluate"] = time.perf_counter() - started

    def _evaluated(self, done: UnwrittenRound, progress: RunProgress) -> RunProgress:
        """Add the results of evaluation and twins to the row; return the progress with them."""
        started, row = time.perf_counter(), done.row
        if done.evaluation is not None:
            metrics = done.evaluation.values()
            row |= metrics
            for option in self._options:
                row |= option.evaluated(done.state, partial(self._tell, logging.WARNING))
            progress = self._selected(progress, row, metrics, done.evaluation.state)
        for twin in self._twins:
            row |= twin.end(row)
        if "concordance" in row:
            progress = replace(progress, result=replace(progress.result, concordance=verdict(row["concordance"])))
        row["seconds_evaluate"] += time.perf_counter() - started
        return replace(progress, twins=tuple(twin.state for twin in self._twins))

    def _selected(
        self, progress: RunProgress, row: Mapping[str, Any], metrics: dict[str, float], state: State
    ) -> RunProgress:
        """Fold in an evaluation; keep its state if it is the selected one."""
        selection, number = self._selection, row["round"]
        result = progress.result.evaluated(row, metrics, selection.targets)
        if selection.takes(result.history, number):
            result = replace(result, metrics=metrics, model_round=number)
            progress = replace(progress, chosen=replace(state, report=None))
        # The next round is under way already, so the run ends after the one that follows it.
        last = min(progress.last, number + ROUNDS_AFTER) if selection.stops(result.history) else progress.last
        return replace(progress, result=result, latest=metrics, last=last)

    def _keep(self, snapshot: Snapshot) -> None:
        """Go back to this aggregation from now on, and write a checkpoint of it if one is due."""
        self._snapshot, self._aggregations = snapshot, self._aggregations + 1
        self._files.mark()
        if self._aggregations >= self._checkpoint_every and self._files.due:
            self._files.save(snapshot)
            self._aggregations = 0
        saving = self._files.saving
        snapshot.state.personal.forget(snapshot.rounds | (saving.rounds if saving else set()))

    def _rewind_twins(self) -> None:
        for twin, state in zip(self._twins, self.progress.twins, strict=True):
            twin.state = state

    def _log(self, done: UnwrittenRound) -> None:
        """Log a round, unless it is one of many without an evaluation."""
        row = done.row
        if done.is_evaluated or row["round"] <= LOGGED_ROUNDS or self._log_due():
            shown = "".join(f", {name} {row[name]:.4f}" for name in self._logged if row.get(name) is not None)
            LOG.info("%s: round %d in %.3f s%s", self.name, row["round"], row["seconds"], shown)

    def _tell_of_nonfinite(self, done: UnwrittenRound) -> None:
        """Log the client updates that were not finite; show the user the first one of the run."""
        rows = done.report.updates
        wrong = [(int(client), what) for client, what in zip(rows.clients, rows.nonfinite, strict=True) if what]
        texts = [f"client {client} in round {done.state.round}: {what} is not finite" for client, what in wrong]
        for text in texts:
            LOG.warning("%s: %s", self.name, text)
        if not self.progress.result.nonfinite:
            policy = self._algorithm.local.nonfinite
            self._watcher.notice(f'{self.name}: {texts[0]}; local.nonfinite = "{policy}"')

    def _tell(self, level: int, text: str) -> None:
        LOG.log(level, "%s: %s", self.name, text)
        self._watcher.notice(f"{self.name}: {text}")


def _counts(fleet: RunFleet) -> dict[str, float]:
    """Return the bytes that a fleet has moved so far, and the seconds that it has spent on starting actors."""
    moved = {f"machine_bytes_{name}": getattr(fleet.traffic, name) for name in TRAFFIC}
    return {**moved, "starting": fleet.starting}


def _reported(report: RoundReport) -> dict[str, Any]:
    """Return the numbers of a round's client updates and of the protocol."""
    rows = report.updates
    labels = np.where(rows.trained, rows.column("labelled"), 0.0)
    losses, labels = rows.column("loss")[labels > 0], labels[labels > 0]
    row: dict[str, Any] = {
        "aggregated": report.aggregated,
        "train_loss": float(np.average(losses, weights=labels)) if len(labels) else None,
        "updates": len(rows),
        "nonfinite": int((~rows.finite).sum()),
        "exchanges": report.exchanges,
        "bytes_up": report.bytes_up,
        "bytes_down": report.bytes_down,
    }
    if (dropped := report.dropped) is not None:
        late, vanished = dropped.count("late"), dropped.count("vanished")
        row |= {"late": late, "vanished": vanished, "samples_wasted": float(dropped.samples.sum())}
    return row
