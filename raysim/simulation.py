"""The main loop: one algorithm's rounds on one fleet, their measures, and what they leave on disk."""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from algorithms import Algorithm, RoundReport, State, step
from raysim.fleet import InlineFleet, RayFleet
from raysim.fleet.traffic import Traffic
from raysim.folder import AlgorithmFolder
from raysim.measures import Evaluation, Selection, Targets, Twin, evaluate, verdict
from raysim.measures.selection import Standing
from raysim.progress import Watcher

LOG = logging.getLogger("raysim")


@dataclass(frozen=True)
class Result:
    """What one algorithm came to.

    Args:
        name: its folder in the run.
        algorithm: its five parts.
        metrics: the evaluation of the model that is written.
        rounds: rounds done.
        model_round: the round that left the model that is written.
        stopped_early: whether patience was lost before the last round.
        standing: what all evaluations came to.
        seconds: of the rounds, without evaluation.
        bytes_up: protocol bytes from clients to the server, over all rounds.
        bytes_down: protocol bytes to the clients.
        exchanges: how often in turn the clients and the server waited for each other.
        simulated_seconds: of the rounds in virtual time; None where there are no devices.
        concordance: what the last round says about it, where it is measured; see `raysim.measures.verdict`.
    """

    name: str
    algorithm: Algorithm
    metrics: dict[str, float] = field(default_factory=dict)
    rounds: int = 0
    model_round: int = 0
    stopped_early: bool = False
    standing: Standing = Standing()
    seconds: float = 0.0
    bytes_up: int = 0
    bytes_down: int = 0
    exchanges: int = 0
    simulated_seconds: float | None = None
    concordance: dict[str, Any] | None = None

    def after(self, row: dict[str, Any]) -> Result:
        """The result with one more round."""
        virtual = row["simulated_seconds"]
        return replace(
            self,
            rounds=self.rounds + 1,
            seconds=self.seconds + row["seconds"],
            bytes_up=self.bytes_up + row["bytes_up"],
            bytes_down=self.bytes_down + row["bytes_down"],
            exchanges=self.exchanges + row["exchanges"],
            simulated_seconds=self.simulated_seconds if virtual is None else (self.simulated_seconds or 0.0) + virtual,
        )


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
    """

    name: str
    algorithm: Algorithm
    fleet: InlineFleet | RayFleet
    targets: Targets
    selection: Selection
    files: AlgorithmFolder
    watcher: Watcher
    twins: tuple[Twin, ...] = ()

    def run(self, state: State, rounds: int, every: int) -> tuple[State, Result]:
        """Do so many rounds, and evaluate after every so many and after the last; 0: only after the last.

        Returns:
            the state that left the model to be written, and what the run came to.
        """
        self.watcher.begin(self.name, rounds, self.algorithm.schedule.size(len(self.fleet.census.clients)))
        records = Records(self)
        if not rounds:
            metrics = evaluate(state, self.algorithm, self.fleet, self.targets)
            return state, replace(records.result, metrics=metrics)
        try:
            self._rounds(state, rounds, every, records)
            return records.finished(rounds)
        except BaseException:
            records.give_up()
            raise

    def _rounds(self, state: State, rounds: int, every: int, records: Records) -> None:
        for number in range(1, rounds + 1):
            last = number == rounds or records.patience_lost
            before, starting = self.fleet.traffic.copy(), self.fleet.starting
            # While this round's visits run, the one before is evaluated and written.
            state = step(state, self.algorithm, self.fleet, last=last, meanwhile=records.write)
            records.add(state, self.fleet.traffic.since(before), self.fleet.starting - starting)
            if last or (every and number % every == 0):
                records.evaluate(state)
            records.follow(state)
            if last:
                break
        records.write()


class Records:
    """What is known of the rounds: the last one waits for its evaluation, the others are written.

    Args:
        simulation: whose rounds they are.
    """

    def __init__(self, simulation: Simulation) -> None:
        self.result = Result(simulation.name, simulation.algorithm)
        self._simulation = simulation
        self._chosen: State | None = None
        self._diverged = False
        self._report: RoundReport | None = None
        self._row: dict[str, Any] = {}
        self._evaluation: Evaluation | None = None
        self._twins: tuple[Twin, ...] = ()
        self._latest: dict[str, float] = {}

    @property
    def patience_lost(self) -> bool:
        """Whether the evaluations that are done end the run: the next round is the last."""
        return self._simulation.selection.stops(self.result.standing)

    def add(self, state: State, traffic: Traffic, starting: float) -> None:
        """Take note of a round that is done, and of the seconds of it in which actors were started."""
        if state.report is None:
            raise RuntimeError("a step left no report")
        stages = _stages(state.report, starting)
        self._report = state.report
        self._row = {"round": state.round, "seconds": sum(stages.values()), **stages}
        self._row |= {"phase": state.report.phase, **_reported(state.report), **_measured(traffic)}
        self._row |= state.report.measures
        if state.phase != state.report.phase:
            text = f"{self._simulation.name}: phase {state.phase + 1} begins after round {state.round}"
            LOG.info(text)
            self._simulation.watcher.notice(text)

    def evaluate(self, state: State) -> None:
        """Begin to evaluate the round that was added last."""
        simulation, started = self._simulation, time.perf_counter()
        self._evaluation = Evaluation(state, simulation.algorithm, simulation.fleet, simulation.targets)
        self._row["seconds_evaluate"] = time.perf_counter() - started

    def follow(self, state: State) -> None:
        """Have the twins begin the round that was added last."""
        simulation = self._simulation
        self._twins = simulation.twins
        for twin in self._twins:
            twin.begin(state, simulation.algorithm, simulation.fleet)

    def write(self) -> None:
        """Complete the round that was added last by its evaluation and its twins', and write it."""
        if self._report is None:
            return
        row, simulation = self._row, self._simulation
        if self._evaluation is not None:
            started = time.perf_counter()
            self._latest = self._evaluation.values()
            row |= self._latest
            row["seconds_evaluate"] += time.perf_counter() - started
            self._select(row["round"], self._latest, self._evaluation.state)
        self._compare(row)
        simulation.files.append(row, self._report)
        shown = "".join(f", {name} {row[name]:.4f}" for name in simulation.targets.columns if name in row)
        LOG.info("%s: round %d in %.3f s%s", simulation.name, row["round"], row["seconds"], shown)
        self._tell_if_diverged(row)
        simulation.watcher.round(row["round"], self._latest)
        self.result = self.result.after(row)
        self._report = self._evaluation = None
        self._twins = ()

    def _compare(self, row: dict[str, Any]) -> None:
        """Complete the row by what the twins have come to; it counts as evaluation."""
        started = time.perf_counter()
        for twin in self._twins:
            row |= twin.end(row)
        if self._twins:
            row["seconds_evaluate"] = row.get("seconds_evaluate", 0.0) + time.perf_counter() - started
        if "concordance" in row:
            self.result = replace(self.result, concordance=verdict(row["concordance"]))

    def finished(self, rounds: int) -> tuple[State, Result]:
        """The state that left the model to be written, and the result, of a run that was to have so many rounds."""
        if self._chosen is None:
            raise RuntimeError("the last round was not evaluated")
        done, simulation = self.result.rounds, self._simulation
        self.result = replace(self.result, stopped_early=done < rounds)
        for text in simulation.selection.notices(self.result.standing, done, done < rounds):
            LOG.info("%s: %s", simulation.name, text)
            simulation.watcher.notice(f"{simulation.name}: {text}")
        return self._chosen, self.result

    def _select(self, number: int, metrics: dict[str, float], state: State) -> None:
        """Take note of an evaluation, and of the state that it was of where that is the one to be kept."""
        selection = self._simulation.selection
        standing = self.result.standing.after(number, metrics, selection.targets)
        self.result = replace(self.result, standing=standing)
        if selection.takes(standing, number):
            self._chosen = state
            self.result = replace(self.result, metrics=metrics, model_round=number)

    def give_up(self) -> None:
        """Write the round that was added last without its evaluation: what was measured is kept."""
        self._evaluation, self._twins = None, ()
        # The very error that ends the run may be the journal's.
        with suppress(Exception):
            self.write()

    def _tell_if_diverged(self, row: dict[str, Any]) -> None:
        """Tell a person of the first round whose training loss is no longer a number."""
        if self._diverged or row["train_loss"] is None or np.isfinite(row["train_loss"]):
            return
        name = self._simulation.name
        text = f"{name}: the training loss is {row['train_loss']} in round {row['round']}; lower local.lr"
        LOG.warning(text)
        self._simulation.watcher.notice(text)
        self._diverged = True


def _stages(report: RoundReport, starting: float) -> dict[str, float]:
    """The seconds of a round's stages, which add up to the round's; starting actors is no part of it.

    Visits run while the driver does other work: what was left to wait for says too little, and the whole too much.
    They took as long as the busiest actor worked, as far as that lies between the two.
    """
    seconds = dict(report.seconds)
    meanwhile, waited = seconds.pop("meanwhile"), max(0.0, seconds["train"] - starting)
    blocks = {block: machine for block, _, machine in report.visits}
    worked: defaultdict[float, float] = defaultdict(float)
    for machine in blocks.values():
        worked[machine["actor"]] += machine["seconds"]
    seconds["train"] = min(waited + meanwhile, max([waited, *worked.values()]))
    return {f"seconds_{stage}": taken for stage, taken in seconds.items()}


def _reported(report: RoundReport) -> dict[str, Any]:
    rows = [row.report for _, row, _ in report.visits if row.report["steps"] and row.report["labelled"]]
    losses, labels = [row["loss"] for row in rows], [row["labelled"] for row in rows]
    return {
        "merged": report.merged,
        "train_loss": float(np.average(losses, weights=labels)) if rows else None,
        "visits": len(report.visits),
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
    }
