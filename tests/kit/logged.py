"""Runs that loggers are told of, and what those must have been told."""

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

import raysim
from raysim import Run
from raysim.simulation.stop import Stop
from raysim.watching.loggers.logger import metric_path
from raysim.watching.progress import Watcher
from tests.kit.runs import quick_resume, quick_run

EXPERIMENT: dict[str, Any] = {
    "seed": 3,
    "rounds": 6,
    "data": {"dataset": "digits", "test": 0.8},
    "partition": {"scheme": "iid", "clients": 6, "local_test": 0.2},
    "model": {"hidden": [6], "norm": "batch"},
    "local": {"batch_size": 20, "lr": 0.05},
    "algorithm": [{"name": "fedavg", "cohort": 3}, {"name": "radfed", "cohort": 3, "aggregate_every": 2}],
    "evaluate": {"every": 2, "metrics": ["accuracy", "auc"]},
}
NAMES = ("fedavg", "radfed")
FILES = ("fedavg/model.safetensors", "radfed/model.safetensors")


class Heard(Watcher):
    """Remembers what a person is told; asks the run to stop in a round, once."""

    def __init__(self, stop_in: int | None = None) -> None:
        self.stop, self.notices = Stop(), list[str]()
        self._stop_in = stop_in

    def notice(self, text: str) -> None:
        self.notices.append(text)

    def round(self, number: int, metrics: dict[str, float]) -> None:
        if number == self._stop_in:
            self.stop.asked, self._stop_in = True, None


def watched(folder: Path, stop_in: int | None = None, **watch: Any) -> Run:
    """The experiment with loggers, stopped in a round of each algorithm and resumed if that is asked for."""
    heard = Heard(stop_in)
    raw = {**EXPERIMENT, "watch": watch}
    if stop_in is None:
        return quick_run(raw, folder, inline=True, watcher=heard)
    try:
        quick_run(raw, folder, inline=True, watcher=heard, stop=heard.stop)
    except raysim.common.errors.StoppedError:
        return quick_resume(folder, inline=True)
    raise AssertionError("the run was not stopped")


def rows(folder: Path) -> list[dict[str, float]]:
    """What a logger must have been told of an algorithm: its table by titles, each round without what is null."""
    table = pq.read_table(folder / "metrics.parquet").to_pylist()
    return [
        {metric_path(name): float(value) for name, value in row.items() if name != "round" and value is not None}
        for row in table
    ]


def same_bytes(one: Path, other: Path) -> bool:
    """Whether two runs have the same models."""
    return all((one / file).read_bytes() == (other / file).read_bytes() for file in FILES)
