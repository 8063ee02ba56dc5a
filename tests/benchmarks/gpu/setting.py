"""Setting of the measurements: device, sizes and folders, and what all parts share."""

from __future__ import annotations

import shutil
import statistics
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from tests.benchmarks.command import Command, run
from tests.benchmarks.peers.loads import LOADS, Load
from tests.benchmarks.plain import WARM
from tests.benchmarks.rounds import population

MIB = 2**20


@dataclass(frozen=True)
class Setting:
    """Sizes and places of the measurements.

    Args:
        device: "cuda" or "cpu".
        rounds: rounds of pfl-research's benchmark.
        few: rounds of every other measurement.
        small: whether populations and cohorts are tiny, to test the script.
        work: folder for populations and runs.
        data: folder with CIFAR-10 in torchvision's layout; None draws images.
        peers: folder of the peers' environments; None looks for their packages here.
    """

    device: str
    rounds: int
    few: int
    small: bool
    work: Path
    data: Path | None = None
    peers: Path | None = None

    @property
    def sharers(self) -> tuple[int, ...]:
        """Numbers of actors on the GPU to compare."""
        return (1, 2) if self.small else (1, 2, 4, 8)

    def load(self, name: str) -> Load:
        """Return a load, cut down if the script is only tested."""
        load = LOADS[name]
        if not self.small:
            return load
        return Load(load.model, load.shape, clients=6, samples=10, cohort=4, hidden=(16,), test_samples=20)

    def population(self, title: str, load: Load) -> Path:
        """Return a population of drawn images; write it if it is not there."""
        path = self.work / f"population-{title}"
        return path if path.exists() else population(load, images(load), path)

    def run(self, experiment: Mapping[str, Any], title: str, actors: int, gpus: float | str | None = None) -> Command:
        """Run the command on actors that share one GPU; with one actor on the CPU, in the command's own process.

        Args:
            experiment: tables of the experiment file.
            title: folder of the run.
            actors: number of client actors.
            gpus: value of `fleet.gpus_per_actor`; default 1 / actors.
        """
        fleet = dict(experiment.get("fleet", {}))
        if self.device == "cuda" or gpus is not None:
            fleet["gpus_per_actor"] = 1 / actors if gpus is None else gpus
        options = ["--inline"] if not fleet.get("gpus_per_actor") and actors == 1 else ["--actors", str(actors)]
        if gpus == "auto":
            options = []
        return run({**experiment, "fleet": fleet}, self.work / title, *options)


def images(load: Load, seed: int = 0) -> dict[str, np.ndarray]:
    """Return images that a model can learn: each class has a pattern of its own, under noise.

    Args:
        load: number, shape and classes of the images.
        seed: seed of all draws.
    """
    rng = np.random.default_rng(seed)
    patterns = rng.integers(64, 192, (load.classes, *load.shape))

    def part(*size: int) -> tuple[np.ndarray, np.ndarray]:
        labels = rng.integers(0, load.classes, size)
        noise = rng.normal(0, 96, (*size, *load.shape)).astype(np.float32)
        return np.clip(patterns[labels] + noise, 0, 255).astype(np.uint8), labels.astype(np.int64)

    arrays = dict(zip(("x", "y"), part(load.clients, load.samples), strict=True))
    if load.test_samples:
        arrays |= zip(("x_test", "y_test"), part(load.test_samples), strict=True)
    return arrays


def steady(done: Command, name: str = "fedavg") -> float:
    """Return the median seconds of a round after the first ones, or of all rounds if there are no more."""
    seconds = pq.read_table(done.folder / name / "metrics.parquet")["seconds"].to_pylist()
    return float(statistics.median(seconds[WARM:] or seconds))


@dataclass
class GpuMemory:
    """Memory of the first GPU, sampled while a measurement runs.

    Args:
        samples: memory in use by all processes, in MiB.
    """

    samples: list[int] = field(default_factory=list)

    @property
    def peak(self) -> int | None:
        """Most memory in use, in MiB; None without a GPU."""
        return max(self.samples, default=None)


@contextmanager
def gpu_memory(device: str) -> Iterator[GpuMemory]:
    """Sample the GPU's memory in use, five times a second."""
    memory = GpuMemory()
    if device != "cuda" or shutil.which("nvidia-smi") is None:
        yield memory
        return
    query = ["nvidia-smi", "-i", "0", "--query-gpu=memory.used", "--format=csv,noheader,nounits", "-lms", "200"]
    with subprocess.Popen(query, stdout=subprocess.PIPE, text=True) as sampler:
        try:
            yield memory
        finally:
            sampler.terminate()
            said, _ = sampler.communicate()
            memory.samples += [int(line) for line in said.split() if line.isdigit()]


Add = Callable[..., None]
"""Enter a case of a part into the table, with its figures as keywords."""


def attempt(add: Add, case: str, measure: Callable[[], Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """Enter the figures of a case, or the error that ended it; return the figures, or None."""
    try:
        figures = measure()
    except (Exception, SystemExit) as error:  # the next case goes on
        add(case, error=f"{type(error).__name__}: {error}")
        return None
    add(case, **figures)
    return figures
