"""Seconds a round, loads A to C: plain loops, the engine, and the peers, in turn in one run."""

from __future__ import annotations

import json
import statistics
import subprocess
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa

import partitioning
from algorithms import Local, Rounds, Sample, begin, fedavg, next_round
from raysim.fleet.client_actors import ClientActors
from raysim.fleet.ray_fleet import RayFleet
from raysim.fleet.worker_plan import WorkerPlan
from tests.benchmarks.peers.loads import LOADS, Load, make
from tests.benchmarks.plain import WARM, local_of, model_of, one_loop, two_loops

PEERS = Path(__file__).parent / "peers"
SCRIPTS: dict[str, tuple[str, str, list[str], str]] = {
    "FedJAX": ("fedjax", "fedjax_.py", [], "AB"),
    "pfl, 1 process": ("pfl", "pfl_.py", ["--processes", "1"], "AB"),
    "pfl, 2 processes": ("pfl", "pfl_.py", ["--processes", "2"], "ABC"),
    "Flower, 2 workers": ("flower", "flower.py", [], "AB"),
}
"""Peers: the environment, the script, its arguments, and the loads on which it is compared."""


def table_of(x: np.ndarray, y: np.ndarray) -> pa.Table:
    """Images and labels, [..., channels, height, width] and [...]."""
    image = pa.array(x.reshape(-1))
    for size in reversed(x.shape[-3:]):
        image = pa.FixedSizeListArray.from_arrays(image, size)
    return pa.table({"image": image, "label": pa.array(y.reshape(-1))})


def population(load: Load, arrays: dict[str, np.ndarray], folder: Path) -> Path:
    """The load's samples, dealt to clients of equal size."""
    partitioning.make(table_of(arrays["x"], arrays["y"]), folder, scheme="iid", clients=load.clients)
    return folder


def plan_of(load: Load, path: Path, local: Local | None = None, block: int | str = "auto") -> WorkerPlan:
    """What the engine runs on: the defaults."""
    algorithm = fedavg(Sample(cohort=load.cohort), local or local_of(load))
    return WorkerPlan(path, model_of(load), algorithm, path.parent / "personal", block).resolved()


def engine(fleet: RayFleet, plan: WorkerPlan, rounds: int) -> float:
    """Median seconds of a round of the engine: a `run_round`, from aggregation to aggregation.

    First every client takes one step: the other frameworks have all data decoded in memory, too.
    """
    brief = replace(plan.algorithm.local, epochs=None, steps=1)
    whole = replace(plan.algorithm, schedule=Rounds(Sample()), local=brief)
    next_round(begin(plan.module(), fleet, seed=0), whole, fleet)
    state, seconds = begin(plan.module(), fleet, seed=0), []
    for _ in range(WARM + rounds):
        started = time.perf_counter()
        state = next_round(state, plan.algorithm, fleet)
        seconds.append(time.perf_counter() - started)
    return statistics.median(seconds[WARM:])


def peer(python: Path, script: str, more: list[str], data: Path, name: str, rounds: int) -> float:
    """Median seconds of a round of a peer, in its own environment."""
    arguments = ["--data", str(data), "--load", name, "--rounds", str(rounds), "--warm", str(WARM), *more]
    done = subprocess.run([python, PEERS / script, *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{script}: {done.stderr.strip().splitlines()[-1]}")
    return statistics.median(json.loads(done.stdout.strip().splitlines()[-1])["seconds"])


def measure(
    name: str, actors: ClientActors, environments: Path | None, repeats: int, rounds: int, folder: Path
) -> dict[str, float]:
    """The medians over repeats, all ways in turn in each, so that a busy machine slows all of them alike."""
    load, arrays = LOADS[name], make(name)
    data, path = folder / f"{name}.npz", population(load, arrays, folder / name)
    np.savez(data, **arrays)
    plan = plan_of(load, path)
    ways: dict[str, Callable[[], float]] = {
        "plain loop": partial(one_loop, path, load, rounds),
        "two plain loops": partial(two_loops, path, load, rounds),
        "raysim, 2 actors": lambda: engine(actors.fleet(plan), plan, rounds),
    }
    for title, (environment, script, more, loads) in SCRIPTS.items() if environments else ():
        if name not in loads:
            continue
        python = Path(str(environments)) / environment / "bin" / "python"
        ways[title] = partial(peer, python, script, more, data, name, rounds)
    found: dict[str, list[float]] = {title: [] for title in ways}
    for _ in range(repeats):
        for title, way in ways.items():
            found[title].append(way())
    return {title: statistics.median(values) for title, values in found.items()}
