"""Loads F and H: costs that grow with the population, and redistribution."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

import partitioning
from tests.benchmarks.command import experiment_of, run_on_actors
from tests.benchmarks.peers.loads import CIFAR, MNIST, SMALL, Load
from tests.benchmarks.rounds import Way, medians, population

SIZES = (1_000, 100_000, 1_000_000)
ROUNDS = 300
"""Rounds of a command of load F; two algorithms of load H share them."""

REDISTRIBUTED = {
    # 0.8 MB and short client updates.
    "mlp": (Load("mlp", MNIST, clients=100, samples=20, cohort=50), 300, {"name": "mlp", "hidden": [200, 200]}),
    # 0.6 MB and client updates of some 50 ms.
    "cnn": (
        Load("cnn", CIFAR, clients=40, samples=100, cohort=20),
        60,
        {"name": "cnn", "channels": [16, 32], "hidden": 64},
    ),
}
"""Load H: the load, the rounds of each algorithm, and the model."""


def random_population(folder: Path, load: Load) -> Path:
    """Write a population of random images."""
    rng, rows = np.random.default_rng(0), load.clients * load.samples
    pixels = rng.integers(0, 256, (rows, *load.shape), dtype=np.uint8)
    return population(load, {"x": pixels, "y": rng.integers(0, load.classes, rows)}, folder)


def populations(folder: Path, repeats: int) -> dict[str, float]:
    """F: return seconds a round of 100 client updates for populations of different sizes, and seconds to open them."""
    runs = (folder / f"F-run-{number}" for number in count())
    ways: list[Way] = []
    for size in SIZES:
        load = Load("mlp", SMALL, clients=size, samples=2, cohort=100, epochs=20)
        ways.append(partial(_opened_and_run, load, random_population(folder / f"F-{size}", load), runs))
    return medians(ways, repeats)


def _opened_and_run(load: Load, path: Path, runs: Iterator[Path]) -> Iterator[tuple[str, float]]:
    started = time.perf_counter()
    partitioning.Population.open(path)
    yield f"{load.clients:,} clients, seconds to open", time.perf_counter() - started
    done = run_on_actors(experiment_of(load, {"population": str(path)}, ROUNDS), runs)
    yield f"{load.clients:,} clients, seconds a round", statistics.median(done.round_seconds())


def redistribution(folder: Path, repeats: int) -> dict[str, float]:
    """H: return seconds of rounds that redistribute every model, and of rounds of the same updates that sum them."""
    runs = (folder / f"H-run-{number}" for number in count())
    found: dict[str, float] = {}
    for title, (load, rounds, model) in REDISTRIBUTED.items():
        path = random_population(folder / f"H-{title}", load)
        experiment = experiment_of(load, {"population": str(path)}, rounds) | {"model": model}
        radfed = {"name": "radfed", "cohort": load.cohort}
        # With `aggregate_every = 1` RADFed is FedAvg with equal weights.
        experiment["algorithm"] = [{**radfed, "aggregate_every": 1}, {**radfed, "aggregate_every": 10 * rounds}]
        found |= medians([partial(_both, title, experiment, runs)], repeats)
        more = found[f"{title}, redistributed, seconds a round"] - found[f"{title}, summed, seconds a round"]
        found[f"{title}, ms a model more"] = 1e3 * more / load.cohort
    return found


def _both(title: str, experiment: dict[str, Any], runs: Iterator[Path]) -> Iterator[tuple[str, float]]:
    done = run_on_actors(experiment, runs, ("radfed", "radfed-2"))
    yield f"{title}, summed, seconds a round", statistics.median(done.round_seconds("radfed"))
    yield f"{title}, redistributed, seconds a round", statistics.median(done.round_seconds("radfed-2"))
