"""How fast the engine is: loads A to F, beside plain loops and other simulators, in one run.

    uv run python -m tests.benchmarks.speed [--loads ABCDEFGH] [--peers .peers] [--repeats 5] [--rounds 6]

A, B and C are seconds a round, from aggregation to aggregation. "Two plain loops" are the ideal on two cores: two
processes that share the round's client updates, without a framework. D is a whole job, E the engine's cost of a client
update that does nothing, F rounds on populations of 1e3, 1e5 and 1e6 clients, G a cohort of 10,000, H redistribution
beside sums.

All ways take turns in every repeat, so that a busy machine slows all alike, and a figure is the median over repeats of
the median round. The peers need the environments that peers/environments.sh makes; without `--peers` they are left out.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

import raysim  # noqa: F401  before ray: it switches off Ray's hook for `uv run`

# isort: split

import ray
import torch
from rich.console import Console
from rich.table import Table

from raysim.fleet.client_actors import ClientActors
from raysim.fleet.results import fetch_results
from raysim.fleet.timeouts import START_SECONDS
from tests.benchmarks.jobs import job
from tests.benchmarks.rounds import measure
from tests.benchmarks.scale import idle_updates, large_cohort, populations, redistribution

RECORD = Path(__file__).with_suffix(".json")


def main() -> None:
    """Measure, print a table for each load, and write the record beside this file, load by load."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--loads", default="ABCDEFGH")
    parser.add_argument("--peers", type=Path, help="folder of the peers' environments")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=6, help="that count, in each repeat")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for name in asked.loads:
            print(f"load {name}", flush=True)
            found = run(name, asked, Path(folder))
            show(name, found)
            save(name, found, asked.repeats)


def run(name: str, asked: argparse.Namespace, folder: Path) -> dict[str, float]:
    """Measure one load, on two actors of its own."""
    if name == "D":
        return job(asked.repeats)
    with ClientActors(2) as actors:
        fetch_results([handle.fingerprint.remote() for handle in actors.handles()], START_SECONDS)
        others: dict[str, Callable[[], dict[str, float]]] = {
            "E": lambda: idle_updates(actors, folder, asked.repeats),
            "F": lambda: populations(actors, folder, asked.repeats),
            "G": lambda: large_cohort(actors, folder),
            "H": lambda: redistribution(actors, folder, asked.repeats),
        }
        if name in others:
            return others[name]()
        return measure(name, actors, asked.peers, asked.repeats, asked.rounds, folder)


def show(name: str, found: dict[str, float]) -> None:
    """Print a load's figures."""
    table = Table(title=f"load {name}")
    table.add_column("")
    table.add_column("figure", justify="right")
    table.add_column("to two plain loops", justify="right")
    ideal = found.get("two plain loops")
    for title, value in found.items():
        table.add_row(title, f"{value:.3f}", f"{value / ideal:.2f}" if ideal else "")
    Console().print(table)


def save(name: str, found: dict[str, float], repeats: int) -> None:
    """Keep a load's figures, with the commit and the hardware they are from."""
    record = json.loads(RECORD.read_text(encoding="utf-8")) if RECORD.exists() else {}
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    record[name] = {
        "figures": {title: round(value, 4) for title, value in found.items()},
        "repeats": repeats,
        "commit": commit.stdout.strip(),
        "hardware": f"{os.cpu_count()} cores, {platform.machine()}, {torch.backends.cpu.get_cpu_capability()}",
        "torch": torch.__version__,
        "ray": ray.__version__,
    }
    RECORD.write_text(json.dumps(dict(sorted(record.items())), indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
