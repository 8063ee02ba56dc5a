"""Running an experiment: the population, the fleet, each algorithm's rounds, and what they leave on disk."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

from algorithms import Algorithm, Layout, Purpose, State, begin, step, torch_seed
from partitioning import Population
from raysim import report
from raysim.config import Experiment, read
from raysim.config.experiment import Model
from raysim.data import Decoder, decode_population
from raysim.errors import InputError, one_input_error
from raysim.fleet import BenchPlan, ClientActors, InlineFleet, ModelPlan, RayFleet, fingerprint, settled
from raysim.folder import AlgorithmFolder, run_folder, run_log, write_config
from raysim.measures import Targets, evaluate
from raysim.population import population_of
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
class Run:
    """A finished run: its folder, its report, and a result for each algorithm."""

    folder: Path
    report: Path
    results: tuple[Result, ...]


def run(
    config: str | Path | Mapping[str, Any],
    out: str | Path | None = None,
    *,
    changes: Iterable[str] = (),
    actors: int | None = None,
    inline: bool = False,
    address: str | None = None,
    watcher: Watcher | None = None,
) -> Run:
    """Run an experiment.

    Args:
        config: an experiment file, a recipe's name, or the same as a mapping.
        out: the run's folder, which must be new; default `runs/NAME-TIME`.
        changes: `key.path=value` each, applied to the file.
        actors: client actors, instead of the file's; never changes the result.
        inline: run in this process, without Ray; never changes the result.
        address: of a running Ray cluster; None starts Ray here.
        watcher: is told what happens.

    Raises:
        InputError: something of the input is wrong; nothing was left behind.
    """
    raw = dict(config) if isinstance(config, Mapping) else read(config, changes)
    name = "run" if isinstance(config, Mapping) else Path(config).stem
    experiment = Experiment.of(raw)
    if actors is not None:
        if actors < 1:
            raise InputError(f"--actors = {actors}: must be a whole number >= 1; use --actors 1")
        fleet = experiment.fleet.model_copy(update={"actors": actors})
        experiment = experiment.model_copy(update={"fleet": fleet})
    folder = Path(out) if out is not None else Path("runs") / f"{name}-{datetime.now():%Y%m%d-%H%M%S}"
    threads = settled(experiment.fleet.cpus_per_actor)
    with run_folder(folder), run_log(folder / "run.log"), one_input_error(), threads:
        return _run(experiment, folder, inline, address, watcher or Watcher())


def _run(experiment: Experiment, folder: Path, inline: bool, address: str | None, watcher: Watcher) -> Run:
    watcher.stage("reading the data and partitioning it into clients")
    population = population_of(experiment, folder / "population")
    targets = Targets.of(population, experiment.evaluate.on, experiment.evaluate.metrics)
    decoded = decode_population(population)
    model = _model_plan(experiment, decoded)
    named = list(_named(experiment))
    for _, algorithm in named:
        _check(algorithm, model, population)
    write_config(folder / "config.toml", experiment.to_toml())
    LOG.info("%d clients, %d samples, %s", len(population), population.sizes.sum(), model)

    with ExitStack() as stack:
        if not inline:
            watcher.stage("starting Ray and its client actors")
            workers = stack.enter_context(_client_actors(experiment, address))
            machine = workers.same_fingerprint()
        else:
            machine = fingerprint()
        results = []
        LOG.info("fingerprint %s", machine)
        for name, algorithm in named:
            LOG.info("%s: %r", name, algorithm)
            files = AlgorithmFolder(folder / name, targets.columns)
            stack.callback(files.close)
            plan = BenchPlan(decoded, model, algorithm.place, files.kept.absolute(), experiment.fleet.block)
            fleet = _inline(plan, watcher) if inline else RayFleet(workers, plan, watcher.block)
            stack.callback(fleet.close)
            simulation = Simulation(name, algorithm, fleet, targets, files, watcher)
            results.append(simulation.run(experiment, begin(model.build(), fleet, experiment.seed), machine))
    page = report.write([folder], folder / "report.html")
    return Run(folder, page, tuple(results))


@dataclass(frozen=True)
class Simulation:
    """One algorithm on one fleet."""

    name: str
    algorithm: Algorithm
    fleet: InlineFleet | RayFleet
    targets: Targets
    files: AlgorithmFolder
    watcher: Watcher

    def run(self, experiment: Experiment, state: State, machine: Mapping[str, str]) -> Result:
        """Do all rounds, and write what they leave."""
        rounds, every = experiment.rounds, experiment.evaluate.every
        cohort = self.algorithm.schedule.sample.size(len(self.fleet.census.clients))
        self.watcher.begin(self.name, rounds, cohort)
        seconds, up, down = 0.0, 0, 0
        metrics: dict[str, float] = {}
        for number in range(1, rounds + 1):
            last = number == rounds
            state, row = self._round(state, last, evaluated=last or (every > 0 and number % every == 0))
            metrics = {name: row[name] for name in self.targets.columns if name in row} or metrics
            seconds, up, down = seconds + row["seconds"], up + row["bytes_up"], down + row["bytes_down"]
            self.watcher.round(number, metrics)
        if rounds == 0:
            metrics = evaluate(state, self.algorithm, self.fleet, self.targets)
        result = Result(self.name, self.algorithm, metrics, rounds, seconds, up, down)
        self.files.finish(state, self.fleet.placement, _summary(result, machine))
        return result

    def _round(self, state: State, last: bool, evaluated: bool) -> tuple[State, dict[str, Any]]:
        """One round and its row."""
        before = self.fleet.traffic.copy()
        started = time.perf_counter()
        state = step(state, self.algorithm, self.fleet, last=last)
        seconds = time.perf_counter() - started
        traffic = self.fleet.traffic.since(before)

        started = time.perf_counter()
        metrics = evaluate(state, self.algorithm, self.fleet, self.targets) if evaluated else {}
        report = state.report
        if report is None:
            raise RuntimeError("a step left no report")
        rows = [row.report for _, row, _ in report.visits if row.report["steps"]]
        row = {
            "round": state.round,
            "seconds": seconds,
            "seconds_evaluate": time.perf_counter() - started,
            "merged": report.merged,
            "train_loss": _mean([r["loss"] for r in rows], [r["samples"] for r in rows]),
            "visits": len(report.visits),
            "bytes_up": report.bytes_up,
            "bytes_down": report.bytes_down,
            "machine_bytes_driver": traffic.driver,
            "machine_bytes_inlined": traffic.inlined,
            "machine_bytes_moved": traffic.moved,
            **metrics,
        }
        self.files.append(row, state.round, report)
        shown = "".join(f", {name} {value:.4f}" for name, value in metrics.items())
        LOG.info("%s: round %d in %.3f s%s", self.name, state.round, seconds, shown)
        return state, row


def _model_plan(experiment: Experiment, decoded: Path) -> ModelPlan:
    population = Population.open(decoded)
    decoder = Decoder(population.schema, population.manifest.label, population.manifest.classes)
    return ModelPlan(
        experiment.model.name,
        experiment.model.beyond(Model),
        decoder.shape,
        decoder.classes,
        torch_seed(experiment.seed, Purpose.INITIALISE),
    )


def _check(algorithm: Algorithm, model: ModelPlan, population: Population) -> None:
    """Refuse, before anything starts, what would fail on the way."""
    algorithm.place.divide(Layout.of(model.build()))
    algorithm.schedule.sample.size(len(population.train_clients))


def _client_actors(experiment: Experiment, address: str | None) -> ClientActors:
    table = experiment.fleet
    actors = table.actors or max(1, (os.cpu_count() or 1) // table.cpus_per_actor)
    return ClientActors(actors, table.cpus_per_actor, table.gpus_per_actor, address)


def _inline(plan: BenchPlan, watcher: Watcher) -> InlineFleet:
    return InlineFleet(plan.build(), plan.census(), plan.block_size, watcher.block)


def _named(experiment: Experiment) -> Iterator[tuple[str, Algorithm]]:
    """Each algorithm with its folder's name: a second fedavg is fedavg-2."""
    seen: dict[str, int] = {}
    for table in experiment.algorithm:
        seen[table.name] = seen.get(table.name, 0) + 1
        number = seen[table.name]
        yield (table.name if number == 1 else f"{table.name}-{number}"), table.compose()


def _summary(result: Result, machine: Mapping[str, str]) -> dict[str, Any]:
    metrics = {name: None if np.isnan(value) else value for name, value in result.metrics.items()}
    return {
        "name": result.name,
        "algorithm": repr(result.algorithm),
        "rounds": result.rounds,
        "seconds": result.seconds,
        "bytes_up": result.bytes_up,
        "bytes_down": result.bytes_down,
        "metrics": metrics,
        "fingerprint": dict(machine),
    }


def _mean(values: list[float], weights: list[float]) -> float:
    return float(np.average(values, weights=weights)) if values else float("nan")
