"""Whether memory stays flat over a long run: the driver's, the actors', the object store's.

    uv run python -m tests.benchmarks.soak [--algorithms fedavg radfed fedbn] [--rounds 2000] [--every 50]

Runs each algorithm on two actors, its model being large enough for the object store, and looks at the memory every so
many rounds. The slopes are of straight lines through the samples after the first quarter, by least squares: what a run
takes to warm up is no growth. Writes the record and the plot beside this file, algorithm by algorithm.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import raysim  # before ray: it switches off Ray's hook for `uv run`

# isort: split

import numpy as np
import psutil
import ray
import torch
from matplotlib.figure import Figure
from ray._private.worker import global_worker

from raysim.fleet.calls import START_SECONDS
from raysim.watching.progress import Watcher

RECORD, PLOT = Path(__file__).with_suffix(".json"), Path(__file__).with_suffix(".png")
MIB = 2**20
WARM = 0.25
"""The share of a run whose samples the slopes leave out."""

EXPERIMENT: dict[str, dict[str, Any]] = {
    "data": {"dataset": "digits"},
    "partition": {"scheme": "iid", "clients": 20, "test_clients": 2},
    "model": {"hidden": [512], "norm": "batch"},
    "local": {"steps": 2, "batch_size": 10, "lr": 0.05},
    "fleet": {"actors": 2, "block": 2},
    "evaluate": {"every": 50, "metrics": ["accuracy"]},
}


class Sampler(Watcher):
    """Looks at the memory of this process, its actors and the object store, every so many rounds."""

    def __init__(self, every: int) -> None:
        self.samples: list[dict[str, float]] = []
        self._every = every
        self._driver = psutil.Process()

    def begin(self, name: str, rounds: int, cohort: int, done: int = 0) -> None:
        """Wait for the actors: until they arrive the driver runs blocks itself, if need be all of them."""
        deadline = time.monotonic() + START_SECONDS
        while len(self._actors()) < EXPERIMENT["fleet"]["actors"] and time.monotonic() < deadline:
            time.sleep(0.1)

    def round(self, number: int, metrics: dict[str, float]) -> None:
        actors = self._actors() if number % self._every == 0 else []
        if len(actors) == EXPERIMENT["fleet"]["actors"]:
            self.samples.append({"round": number, **self._memory(actors)})

    def _actors(self) -> list[psutil.Process]:
        return [each for each in self._driver.children(recursive=True) if each.name().startswith("ray::Client")]

    def _memory(self, actors: list[psutil.Process]) -> dict[str, float]:
        found = {"driver, MiB": self._driver.memory_info().rss / MIB}
        for number, actor in enumerate(sorted(actors, key=lambda each: each.pid)):
            found[f"actor {number}, MiB"] = private(actor)
        (raylet,) = [each for each in self._driver.children() if each.name() == "raylet"]
        # The raylet maps the store: pages of it that were ever written, in use or free again.
        found["object store, MiB"] = raylet.memory_info().shared / MIB
        found["objects the driver holds"] = float(len(global_worker.core_worker.get_all_reference_counts()))
        return found


def private(process: psutil.Process) -> float:
    """The memory that a process has for itself, in MiB: the object store's pages are counted there."""
    memory = process.memory_info()
    return float(memory.rss - memory.shared) / MIB


def soak(name: str, rounds: int, every: int) -> list[dict[str, float]]:
    """Run one algorithm; the samples."""
    sampler = Sampler(every)
    table = {"name": name, "cohort": 8} | ({"aggregate_every": 10} if name == "radfed" else {})
    with tempfile.TemporaryDirectory() as folder:
        raysim.run({**EXPERIMENT, "rounds": rounds, "algorithm": table}, Path(folder) / "run", watcher=sampler)
    return sampler.samples


def slopes(samples: list[dict[str, float]]) -> dict[str, float]:
    """Of each column, by 1,000 rounds."""
    warm = samples[int(WARM * len(samples)) :]
    rounds = np.array([sample["round"] for sample in warm])
    columns = [column for column in warm[0] if column != "round"]
    return {column: float(1000 * np.polyfit(rounds, [each[column] for each in warm], 1)[0]) for column in columns}


def draw(record: dict[str, dict[str, list[dict[str, float]]]]) -> None:
    """A row an algorithm: memory on the left, objects on the right."""
    figure = Figure(figsize=(9, 2.6 * len(record)), layout="constrained")
    grid = figure.subplots(len(record), 2, squeeze=False, width_ratios=[2, 1])
    for (name, found), (memory, objects) in zip(record.items(), grid, strict=True):
        samples = found["samples"]
        for column in [each for each in samples[0] if each != "round"]:
            axes = memory if column.endswith("MiB") else objects
            axes.plot([each["round"] for each in samples], [each[column] for each in samples], label=column)
        memory.set(title=name, xlabel="round", ylabel="MiB", ylim=(0, None))
        objects.set(title="objects the driver holds", xlabel="round", ylim=(0, None))
        memory.legend(fontsize=7, ncols=2)
    figure.savefig(PLOT, dpi=110)


def main() -> None:
    """Measure, print the slopes, and write the record and the plot."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--algorithms", nargs="+", default=["fedavg", "radfed", "fedbn"])
    parser.add_argument("--rounds", type=int, default=2000)
    parser.add_argument("--every", type=int, default=50, help="rounds between two samples")
    asked = parser.parse_args()
    record = json.loads(RECORD.read_text(encoding="utf-8")) if RECORD.exists() else {}
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    for name in asked.algorithms:
        samples = soak(name, asked.rounds, asked.every)
        found = slopes(samples)
        print(name, *(f"{column}: {slope:+.2f} in 1,000 rounds" for column, slope in found.items()), sep="\n  ")
        record[name] = {
            "slopes in 1,000 rounds": {column: round(slope, 3) for column, slope in found.items()},
            "rounds": asked.rounds,
            "commit": commit.stdout.strip(),
            "hardware": f"{os.cpu_count()} cores, {platform.machine()}",
            "torch": torch.__version__,
            "ray": ray.__version__,
            "samples": [{column: round(value, 1) for column, value in sample.items()} for sample in samples],
        }
        RECORD.write_text(json.dumps(dict(sorted(record.items())), indent=1) + "\n", encoding="utf-8")
        draw(record)


if __name__ == "__main__":
    main()
