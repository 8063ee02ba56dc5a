"""Seconds a round: a plain PyTorch loop over the same visits, beside the engine with one and two actors.

    uv run python tests/benchmarks/overhead.py [--repeats 5] [--rounds 6]

The plain loop has no framework: resident tensors, `torch.optim.SGD`, a running weighted sum. "two at once" are two
such processes that share the round's visits, started together: the ideal on two cores. All four run in turn in every
repeat, so that a busy machine slows all of them alike; a figure is the median over repeats of the median round.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import platform
import statistics
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import raysim  # noqa: F401  before ray: it switches off Ray's hook for `uv run`

# isort: split

import numpy as np
import pyarrow as pa
import ray
import torch
from rich.console import Console
from rich.table import Table
from torch.nn.functional import cross_entropy

import partitioning
from algorithms import Local, Place, Purpose, Sample, begin, fedavg, generator, step, torch_seed
from raysim.data.shards import Shards
from raysim.fleet import BenchPlan, ClientActors, ModelPlan, RayFleet

LOCAL = Local(lr=0.1, epochs=1, batch_size=10)
WARM = 2
"""Rounds that are not counted: first touch of memory, data read into caches."""


@dataclass(frozen=True)
class Load:
    """So many clients of so many samples, so many of them a round."""

    name: str
    clients: int
    samples: int
    cohort: int


LOADS = (Load("A", 100, 600, 10), Load("B", 1000, 20, 100))


def population(load: Load, folder: Path) -> Path:
    """MNIST-shaped random images, dealt evenly."""
    rng = np.random.default_rng(0)
    n = load.clients * load.samples
    pixels = pa.array(rng.integers(0, 256, n * 784, dtype=np.uint8))
    image = pixels
    for size in (28, 28, 1):
        image = pa.FixedSizeListArray.from_arrays(image, size)
    table = pa.table({"image": image, "label": pa.array(rng.integers(0, 10, n))})
    partitioning.make(table, folder, scheme="iid", clients=load.clients)
    return folder


def model_plan() -> ModelPlan:
    """The perceptron 784-200-200-10."""
    seed = torch_seed(0, Purpose.INITIALISE)
    return ModelPlan("mlp", {"hidden": (200, 200)}, (1, 28, 28), 10, seed)


class PlainLoop:
    """Federated averaging as one would write it for oneself."""

    def __init__(self, path: Path, load: Load) -> None:
        torch.set_num_threads(1)
        shards = Shards(path)
        self.data = [shards.samples(client, "train") for client in range(load.clients)]
        self.module = model_plan().build()
        self.load = load
        self.start = {name: value.clone() for name, value in self.module.state_dict().items()}

    def round(self, number: int, share: slice) -> dict[str, torch.Tensor]:
        """The share's visits of a round, summed by samples."""
        cohort = Sample(cohort=self.load.cohort).draw(np.arange(self.load.clients), 0, number)
        total = {name: torch.zeros_like(value) for name, value in self.start.items()}
        for client in cohort[share]:
            self.module.load_state_dict(self.start)
            optimiser = torch.optim.SGD(self.module.parameters(), lr=LOCAL.lr)
            x, y = self.data[client]
            for rows in LOCAL.batches(len(y), generator(0, Purpose.BATCHES, number, int(client))):
                batch = torch.from_numpy(rows)
                optimiser.zero_grad()
                cross_entropy(self.module(x[batch]), y[batch]).backward()
                optimiser.step()
            for name, value in self.module.state_dict().items():
                total[name] += len(y) * value
        return total


def plain(path: Path, load: Load, rounds: int) -> float:
    """Median seconds of a round of the plain loop in this process."""
    loop = PlainLoop(path, load)
    seconds = []
    for number in range(1, WARM + rounds + 1):
        started = time.perf_counter()
        total = loop.round(number, slice(None))
        loop.start = {name: value / (load.cohort * load.samples) for name, value in total.items()}
        seconds.append(time.perf_counter() - started)
    return statistics.median(seconds[WARM:])


def _half(path: Path, load: Load, rounds: int, which: int, barrier: Any, results: Any) -> None:
    loop = PlainLoop(path, load)
    for number in range(1, WARM + rounds + 1):
        barrier.wait()
        started = time.perf_counter()
        loop.round(number, slice(which, None, 2))
        results.put((number, time.perf_counter() - started))


def two_at_once(path: Path, load: Load, rounds: int) -> float:
    """Median seconds of a round that two plain loops share: the slower one's, and no time to combine."""
    context = multiprocessing.get_context("spawn")
    barrier, results = context.Barrier(2), context.Queue()
    halves = [context.Process(target=_half, args=(path, load, rounds, which, barrier, results)) for which in range(2)]
    for half in halves:
        half.start()
    found = [results.get(timeout=300) for _ in range(2 * (WARM + rounds))]
    for half in halves:
        half.join()
    slower = [max(s for n, s in found if n == number) for number in range(1, WARM + rounds + 1)]
    return statistics.median(slower[WARM:])


def engine(fleet: RayFleet, load: Load, rounds: int) -> float:
    """Median seconds of a round of the engine: a `step`, from merge to merge."""
    algorithm = fedavg(Sample(cohort=load.cohort), LOCAL)
    state = begin(model_plan().build(), fleet, seed=0)
    seconds = []
    for _ in range(WARM + rounds):
        started = time.perf_counter()
        state = step(state, algorithm, fleet)
        seconds.append(time.perf_counter() - started)
    return statistics.median(seconds[WARM:])


def measure(load: Load, repeats: int, rounds: int, folder: Path) -> dict[str, float]:
    """The medians over repeats of the four ways."""
    path = population(load, folder / load.name)
    plan = BenchPlan(path, model_plan(), Place(), folder / "kept")
    found: dict[str, list[float]] = {"plain": [], "two at once": [], "1 actor": [], "2 actors": []}
    with ClientActors(1) as one, ClientActors(2) as two:
        fleets = one.fleet(plan), two.fleet(plan)
        for _ in range(repeats):
            found["plain"].append(plain(path, load, rounds))
            found["two at once"].append(two_at_once(path, load, rounds))
            found["1 actor"].append(engine(fleets[0], load, rounds))
            found["2 actors"].append(engine(fleets[1], load, rounds))
    return {name: statistics.median(values) for name, values in found.items()}


def main() -> None:
    """Measure both loads, print a table, and write it beside this file."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=6)
    arguments = parser.parse_args()
    # One actor and two actors live side by side, taking turns.
    ray.init(address="local", num_cpus=3, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    with tempfile.TemporaryDirectory() as folder:
        results = {load.name: measure(load, arguments.repeats, arguments.rounds, Path(folder)) for load in LOADS}
    ray.shutdown()
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    record = {
        "commit": commit.stdout.strip(),
        "hardware": f"{os.cpu_count()} cores, {platform.machine()}, {torch.backends.cpu.get_cpu_capability()}",
        "torch": torch.__version__,
        "ray": ray.__version__,
        "seconds_a_round": results,
    }
    Path(__file__).with_suffix(".json").write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    table = Table(title="seconds a round (ratio to two plain loops at once)")
    for name in ("load", "plain", "two at once", "1 actor", "2 actors"):
        table.add_column(name, justify="right")
    for name, row in results.items():
        ideal = row["two at once"]
        table.add_row(name, *(f"{seconds:.3f} ({seconds / ideal:.2f})" for seconds in row.values()))
    Console().print(table)


if __name__ == "__main__":
    main()
