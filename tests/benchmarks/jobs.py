"""Load D: a whole job, from the command to the report, beside a plain loop that does the same work."""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import tomli_w
import torch

import partitioning
from raysim.data.shards import Shards
from tests.benchmarks.peers.loads import LOADS, make
from tests.benchmarks.plain import PlainLoop
from tests.benchmarks.rounds import table_of


def job(repeats: int) -> dict[str, float]:
    """Median seconds of both, start included."""
    load, arrays = LOADS["D"], make("D")
    with tempfile.TemporaryDirectory() as folder:
        at = Path(folder)
        test = table_of(arrays["x_test"], arrays["y_test"])
        table = table_of(arrays["x"], arrays["y"])
        partitioning.make(table, at / "population", scheme="iid", clients=load.clients, test=test)
        experiment = {
            "rounds": load.rounds,
            "data": {"population": str(at / "population")},
            "model": {"name": load.model},
            "algorithm": {"name": "fedavg", "cohort": load.cohort},
            "local": {"lr": load.lr, "epochs": load.epochs, "batch_size": load.batch},
            "evaluate": {"every": load.test_every, "metrics": ["accuracy", "loss"]},
        }
        (at / "d.toml").write_text(tomli_w.dumps(experiment))
        found: dict[str, list[float]] = {"plain loop": [], "raysim run": []}
        for repeat in range(repeats):
            found["plain loop"].append(_seconds(["-m", "tests.benchmarks.jobs", str(at / "population")]))
            run = ["-m", "raysim", "run", str(at / "d.toml"), "--out", str(at / f"run-{repeat}")]
            found["raysim run"].append(_seconds(run))
    return {name: statistics.median(values) for name, values in found.items()}


def _seconds(arguments: list[str]) -> float:
    started = time.perf_counter()
    subprocess.run([sys.executable, *arguments], check=True, capture_output=True)
    return time.perf_counter() - started


@torch.no_grad()
def _test(loop: PlainLoop, shards: Shards) -> float:
    loop.module.load_state_dict(loop.start)
    x, y = shards.test_slice(0)
    return float((loop.module(x).argmax(1) == y).double().mean())


if __name__ == "__main__":
    shards, plain = Shards(Path(sys.argv[1])), PlainLoop(Path(sys.argv[1]), LOADS["D"])
    for number in range(1, LOADS["D"].rounds + 1):
        plain.round(number)
        if number % LOADS["D"].test_every == 0:
            print(number, _test(plain, shards))
