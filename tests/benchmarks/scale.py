"""Loads E to H: the engine's cost of a client update, and costs that grow with the population."""

from __future__ import annotations

import resource
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import partitioning
from algorithms import Equal, Local, Purpose, Sample, begin, fedavg, next_round, radfed, torch_seed
from raysim.fleet.client_actors import ClientActors
from raysim.fleet.worker_plan import ModelPlan, WorkerPlan
from tests.benchmarks.peers.loads import HIDDEN
from tests.benchmarks.plain import WARM
from tests.benchmarks.rounds import table_of

SHAPE = (1, 8, 8)
SIZES = (1_000, 100_000, 1_000_000)


def population(folder: Path, clients: int, samples: int, shape: tuple[int, ...] = SHAPE) -> Path:
    """Random images, so many a client."""
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, (clients * samples, *shape), dtype=np.uint8)
    table = table_of(pixels, rng.integers(0, 10, clients * samples))
    partitioning.make(table, folder, scheme="iid", clients=clients)
    return folder


def plan_of(
    path: Path, cohort: int, hidden: Sequence[int], local: Local, norm: str = "none", shape: Any = SHAPE
) -> WorkerPlan:
    """A perceptron on it."""
    model = ModelPlan("mlp", {"hidden": tuple(hidden), "norm": norm}, shape, 10, torch_seed(0, Purpose.INITIALISE))
    return WorkerPlan(path, model, fedavg(Sample(cohort=cohort), local), path.parent / "personal").resolved()


def seconds_of(actors: ClientActors, plan: WorkerPlan, rounds: int) -> list[float]:
    """Of each round."""
    fleet, seconds = actors.fleet(plan), []
    state = begin(plan.module(), fleet, seed=0)
    for _ in range(WARM + rounds):
        started = time.perf_counter()
        state = next_round(state, plan.algorithm, fleet)
        seconds.append(time.perf_counter() - started)
    return seconds[WARM:]


def idle_updates(actors: ClientActors, folder: Path, repeats: int) -> dict[str, float]:
    """E: microseconds of engine a client update; 1,000 client updates a round do nothing.

    A client has one sample, and batch norm trains on no batch of one: an update loads the model and its data, takes no
    step, and reports.
    """
    plan = plan_of(population(folder / "E", 2_000, 1), 1_000, [8], Local(), norm="batch")
    rounds = [statistics.median(seconds_of(actors, plan, 10)) for _ in range(repeats)]
    return {"microseconds a client update": 1e6 * statistics.median(rounds) / 1_000}


def populations(actors: ClientActors, folder: Path, repeats: int) -> dict[str, float]:
    """F: seconds a round of 100 client updates, for populations of different sizes; and what it takes to open them."""
    local = Local(lr=0.1, epochs=20)
    plans = {size: plan_of(population(folder / f"F-{size}", size, 2), 100, HIDDEN, local) for size in SIZES}
    found: dict[str, float] = {}
    for size, plan in plans.items():
        started = time.perf_counter()
        partitioning.Population.open(plan.population)
        found[f"{size:,} clients, seconds to open"] = time.perf_counter() - started
    rounds: dict[int, list[float]] = {size: [] for size in SIZES}
    for _ in range(repeats):
        for size, plan in plans.items():
            rounds[size].append(statistics.median(seconds_of(actors, plan, 10)))
    return found | {f"{size:,} clients, seconds a round": statistics.median(values) for size, values in rounds.items()}


def redistribution(actors: ClientActors, folder: Path, repeats: int) -> dict[str, float]:
    """H: rounds that redistribute every model beside rounds of the same client updates that sum them.

    The perceptron has 0.8 MB and short client updates; the convolutional network 0.6 MB and updates of some 50 ms.
    """
    found: dict[str, float] = {}
    for title, plan, cohort in _redistributed(folder):
        aggregating = replace(plan, algorithm=replace(plan.algorithm, weighting=Equal()))
        passing = replace(plan, algorithm=radfed(Sample(cohort=cohort), plan.algorithm.local, aggregate_every=1000))
        rounds: dict[str, list[float]] = {"summed": [], "redistributed": []}
        for _ in range(repeats):
            for name, each in (("summed", aggregating), ("redistributed", passing)):
                rounds[name].append(statistics.median(seconds_of(actors, each, 6)))
        medians = {name: statistics.median(values) for name, values in rounds.items()}
        found |= {f"{title}, {name}, seconds a round": value for name, value in medians.items()}
        more = medians["redistributed"] - medians["summed"]
        found[f"{title}, ms a model more"] = 1e3 * more / cohort
    return found


def _redistributed(folder: Path) -> Iterator[tuple[str, WorkerPlan, int]]:
    mnist, cifar = (1, 28, 28), (3, 32, 32)
    path = population(folder / "H-mlp", 100, 20, mnist)
    yield "mlp", plan_of(path, 50, HIDDEN, Local(lr=0.1), shape=mnist), 50
    path = population(folder / "H-cnn", 40, 100, cifar)
    model = ModelPlan("cnn", {"channels": (16, 32), "hidden": 64}, cifar, 10, torch_seed(0, Purpose.INITIALISE))
    algorithm = fedavg(Sample(cohort=20), Local(lr=0.1))
    yield "cnn", WorkerPlan(path, model, algorithm, path.parent / "personal").resolved(), 20


def large_cohort(actors: ClientActors, folder: Path) -> dict[str, float]:
    """G: 10,000 client updates a round, a model of 200,000 numbers: seconds a round, the driver's largest memory."""
    shape = (1, 28, 28)
    plan = plan_of(population(folder / "large", 10_000, 10, shape), 10_000, HIDDEN, Local(lr=0.1), shape=shape)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    seconds = statistics.median(seconds_of(actors, plan, 3))
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"seconds a round": seconds, "driver, MiB before": before, "driver, MiB at most": after}
