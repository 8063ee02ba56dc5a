"""The main loop: one algorithm's rounds on one fleet, their measures, and what they leave on disk."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from algorithms import Algorithm, RoundReport, State, step
from raysim.fleet import InlineFleet, RayFleet
from raysim.fleet.traffic import Traffic
from raysim.folder import AlgorithmFolder
from raysim.measures import Evaluation, Targets, evaluate
from raysim.progress import Watcher

LOG = logging.getLogger("raysim")


@dataclass(frozen=True)
class Result:
    """What one algorithm came to.

    Args:
        name: its folder in the run.
        algorithm: its five parts.
        metrics: the last evaluation.
        rounds: rounds done.
        seconds: of the rounds, without evaluation.
        bytes_up: protocol bytes from clients to the server, over all rounds.
        bytes_down: protocol bytes to the clients.
    """

    name: str
    algorithm: Algorithm
    metrics: dict[str, float] = field(default_factory=dict)
    rounds: int = 0
    seconds: float = 0.0
    bytes_up: int = 0
    bytes_down: int = 0

    def after(self, row: dict[str, Any]) -> Result:
        """The result with one more round."""
        return replace(
            self,
            rounds=self.rounds + 1,
            seconds=self.seconds + row["seconds"],
            bytes_up=self.bytes_up + row["bytes_up"],
            bytes_down=self.bytes_down + row["bytes_down"],
        )


@dataclass(frozen=True)
class _Round:
    """A round that is done and not yet written.

    Args:
        report: what it did.
        row: its row, without an evaluation.
        evaluation: under way, if one was due.
        begun: seconds that it took to begin it.
    """

    report: RoundReport
    row: dict[str, Any]
    evaluation: Evaluation | None
    begun: float


@dataclass(frozen=True)
class Simulation:
    """One algorithm on one fleet.

    Args:
        name: its folder in the run.
        algorithm: its five parts.
        fleet: what runs the blocks.
        targets: what to evaluate on.
        files: where its rows and models go.
        watcher: is told what happens.
    """

    name: str
    algorithm: Algorithm
    fleet: InlineFleet | RayFleet
    targets: Targets
    files: AlgorithmFolder
    watcher: Watcher
    diverged: list[int] = field(default_factory=list, init=False)

    def run(self, state: State, rounds: int, every: int) -> tuple[State, Result]:
        """Do so many rounds, and evaluate after every so many and after the last; 0: only after the last."""
        self.watcher.begin(self.name, rounds, self.algorithm.schedule.sample.size(len(self.fleet.census.clients)))
        result = Result(self.name, self.algorithm)
        if not rounds:
            return state, replace(result, metrics=evaluate(state, self.algorithm, self.fleet, self.targets))
        pending: _Round | None = None
        for number in range(1, rounds + 1):
            before, started = self.fleet.traffic.copy(), time.perf_counter()
            state = step(state, self.algorithm, self.fleet, last=number == rounds)
            seconds = time.perf_counter() - started
            # The round before is written now: its evaluation ran beside this one's visits.
            result, beside = self._end(pending, result)
            due = number == rounds or (every > 0 and number % every == 0)
            pending = self._round(state, seconds, beside, self.fleet.traffic.since(before), due)
        return state, self._end(pending, result)[0]

    def _round(self, state: State, seconds: float, beside: float, traffic: Traffic, due: bool) -> _Round:
        """A round that is done, as far as it is known, its evaluation under way if it is due."""
        if state.report is None:
            raise RuntimeError("a step left no report")
        stages = {f"seconds_{stage}": taken for stage, taken in state.report.seconds.items()}
        stages["seconds_train"] = max(0.0, stages["seconds_train"] - beside)
        row = {
            "round": state.round,
            "seconds": max(0.0, seconds - beside),
            **stages,
            **_reported(state.report),
            **_measured(traffic),
        }
        started = time.perf_counter()
        evaluation = Evaluation(state, self.algorithm, self.fleet, self.targets) if due else None
        return _Round(state.report, row, evaluation, time.perf_counter() - started)

    def _end(self, round: _Round | None, result: Result) -> tuple[Result, float]:
        """Take a round's evaluation and write its row.

        Returns:
            the result so far, and the seconds that the evaluation took of those of the round beside which it ran:
            its blocks' seconds, shared by the actors.
        """
        if round is None:
            return result, 0.0
        row, beside = round.row, 0.0
        if round.evaluation is not None:
            started = time.perf_counter()
            metrics = round.evaluation.values()
            beside = round.evaluation.busy / self.fleet.workers if self.fleet.workers else 0.0
            row |= {"seconds_evaluate": round.begun + beside + time.perf_counter() - started, **metrics}
            result = replace(result, metrics=metrics)
        self.files.append(row, round.report)
        shown = "".join(f", {name} {row[name]:.4f}" for name in self.targets.columns if name in row)
        LOG.info("%s: round %d in %.3f s%s", self.name, row["round"], row["seconds"], shown)
        self._tell_if_diverged(row)
        self.watcher.round(row["round"], result.metrics)
        return result.after(row), beside

    def _tell_if_diverged(self, row: dict[str, Any]) -> None:
        """Tell a person of the first round whose training loss is no longer a number."""
        if self.diverged or row["train_loss"] is None or np.isfinite(row["train_loss"]):
            return
        text = f"{self.name}: the training loss is {row['train_loss']} in round {row['round']}; lower local.lr"
        LOG.warning(text)
        self.watcher.notice(text)
        self.diverged.append(row["round"])


def _reported(report: RoundReport) -> dict[str, Any]:
    rows = [row.report for _, row, _ in report.visits if row.report["steps"]]
    losses, samples = [row["loss"] for row in rows], [row["samples"] for row in rows]
    return {
        "merged": report.merged,
        "train_loss": float(np.average(losses, weights=samples)) if rows else None,
        "visits": len(report.visits),
        "bytes_up": report.bytes_up,
        "bytes_down": report.bytes_down,
    }


def _measured(traffic: Traffic) -> dict[str, Any]:
    return {
        "machine_bytes_driver": traffic.driver,
        "machine_bytes_inlined": traffic.inlined,
        "machine_bytes_moved": traffic.moved,
    }
