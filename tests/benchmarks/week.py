"""A virtual week of FedBuff: 1,000,000 clients with nights, 1,000 of them training at a time.

Run `python -m tests.benchmarks.week`; `--clients` takes another population. It prints the events, their rate, the
virtual days, and the peak of the driver's resident memory.
"""

from __future__ import annotations

import argparse
import json
import resource
import tempfile
import time
from multiprocessing import get_context
from pathlib import Path
from threading import Thread
from typing import Any

import pyarrow.parquet as pq

import raysim
from tests.benchmarks.peers.loads import SMALL, Load
from tests.benchmarks.scale import random_population

WEEK = 7 * 86_400.0
SECONDS = 1600.0
"""Median virtual seconds of a client update."""


def load_of(clients: int) -> Load:
    """Return clients of four small images each."""
    return Load("mlp", SMALL, clients=clients, samples=4, cohort=1)


def experiment(population: str, in_flight: int, buffer: int, rounds: int) -> dict[str, Any]:
    """Return the experiment; a round has as many arrivals as clients train at a time."""
    return {
        "rounds": rounds,
        "data": {"population": population},
        "model": {"name": "logistic"},
        "algorithm": {"name": "fedbuff", "cohort": in_flight, "buffer": buffer},
        "local": {"lr": 0.05, "batch_size": 4, "epochs": 1},
        "evaluate": {"every": 0},
        "devices": {"compute": 4 / SECONDS, "spread": 0.5, "availability": "day-night"},
    }


class OwnMemory(Thread):
    """Peak of this process's memory without mapped files such as libraries and shards, looked up all the time."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.mib = 0.0

    def run(self) -> None:
        while True:
            lines = Path("/proc/self/status").read_text().splitlines()
            self.mib = max(self.mib, *(int(line.split()[1]) / 1024 for line in lines if line.startswith("RssAnon")))
            time.sleep(0.05)


def measure(path: Path, folder: Path, in_flight: int, buffer: int, rounds: int, actors: int) -> dict[str, float]:
    """Run it, and return what is printed."""
    memory = OwnMemory()
    memory.start()
    started = time.perf_counter()
    run = raysim.run(experiment(str(path), in_flight, buffer, rounds), folder, actors=actors or None, inline=not actors)
    wall, table = time.perf_counter() - started, pq.read_table(run.folder / "fedbuff" / "metrics.parquet")
    rows = {name: table[name].to_pylist() for name in ("seconds", "updates", "vanished", "simulated_seconds")}
    events = sum(rows["updates"]) + sum(rows["vanished"])
    return {
        "seconds of the command": wall,
        "seconds of the rounds": sum(rows["seconds"]),
        "virtual days": sum(rows["simulated_seconds"]) / 86_400,
        "arrivals": sum(rows["updates"]),
        "vanished": sum(rows["vanished"]),
        "events a second": events / sum(rows["seconds"]),
        "microseconds an event": 1e6 * sum(rows["seconds"]) / events,
        "MiB of the driver": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "MiB of the driver without mapped files": memory.mib,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, default=1_000_000)
    parser.add_argument("--in-flight", type=int, default=1000)
    parser.add_argument("--buffer", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=round(1.15 * WEEK / SECONDS), help="default: more than a week")
    parser.add_argument("--actors", type=int, default=2, help="0 runs in this process")
    parser.add_argument("--population", type=Path, help="population of an earlier run; default: a new one")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = given.population or Path(folder) / "population"
        if not path.exists():
            # In a process of its own, because making it takes memory.
            write = get_context("spawn").Process(target=random_population, args=(path, load_of(given.clients)))
            write.start()
            write.join()
        found = measure(path, Path(folder) / "run", given.in_flight, given.buffer, given.rounds, given.actors)
        print(json.dumps({"clients": given.clients, **found}, indent=1))


if __name__ == "__main__":
    main()
