"""The main loop: one algorithm's rounds on one fleet, their measures, and what they leave on disk."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from algorithms import Algorithm, RoundReport, State, step
from raysim.fleet import InlineFleet, RayFleet
from raysim.fleet.traffic import Traffic
from raysim.folder import AlgorithmFolder
from raysim.measures import Targets, evaluate
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
    metrics: dict[str, float]
    rounds: int
    seconds: float
    bytes_up: int
    bytes_down: int


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

    def run(self, state: State, rounds: int, every: int) -> tuple[State, Result]:
        """Do so many rounds, and evaluate after every so many and after the last; 0: only after the last."""
        self.watcher.begin(self.name, rounds, self.algorithm.schedule.sample.size(len(self.fleet.census.clients)))
        metrics = {} if rounds else evaluate(state, self.algorithm, self.fleet, self.targets)
        seconds, up, down = 0.0, 0, 0
        diverged = False
        for number in range(1, rounds + 1):
            before, started = self.fleet.traffic.copy(), time.perf_counter()
            state = step(state, self.algorithm, self.fleet, last=number == rounds)
            row: dict[str, Any] = {"seconds": time.perf_counter() - started}
            if number == rounds or (every and number % every == 0):
                started = time.perf_counter()
                metrics = evaluate(state, self.algorithm, self.fleet, self.targets)
                row |= {"seconds_evaluate": time.perf_counter() - started, **metrics}
            row |= _measured(self.fleet.traffic.since(before))
            self._write(state, row)
            diverged = diverged or self._has_diverged(row)
            seconds, up, down = seconds + row["seconds"], up + row["bytes_up"], down + row["bytes_down"]
            self.watcher.round(number, metrics)
        return state, Result(self.name, self.algorithm, metrics, rounds, seconds, up, down)

    def _has_diverged(self, row: dict[str, Any]) -> bool:
        """Whether the round's training loss is no longer a number, which a person is told."""
        if row["train_loss"] is None or np.isfinite(row["train_loss"]):
            return False
        text = f"{self.name}: the training loss is {row['train_loss']} in round {row['round']}; lower local.lr"
        LOG.warning(text)
        self.watcher.notice(text)
        return True

    def _write(self, state: State, row: dict[str, Any]) -> None:
        """Complete a round's row by what the round reports, and write it."""
        if state.report is None:
            raise RuntimeError("a step left no report")
        row |= {"round": state.round, **_reported(state.report)}
        self.files.append(row, state.report)
        shown = "".join(f", {name} {row[name]:.4f}" for name in self.targets.columns if name in row)
        LOG.info("%s: round %d in %.3f s%s", self.name, state.round, row["seconds"], shown)


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
