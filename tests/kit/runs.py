"""Runs that leave out the report, which takes most of the time of a small run, and what two of them have in common."""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from algorithms.names import ALGORITHMS
from raysim import Run
from raysim.common.errors import StoppedError
from raysim.common.names import REPORT
from raysim.simulation.api import read_experiment, resume_experiment, run_experiment
from raysim.simulation.options import RunOptions
from raysim.simulation.stop import Stop
from raysim.store.location import existing_location, new_location
from raysim.store.summary import read_summary
from raysim.watching.progress import Watcher

SMALL: dict[str, Any] = {
    "seed": 3,
    "rounds": 5,
    "data": {"dataset": "digits", "test": 0.8},
    "partition": {"scheme": "iid", "clients": 6, "local_test": 0.2, "validation_clients": 1},
    "model": {"hidden": [6], "norm": "batch"},
    "local": {"batch_size": 20},
    "fleet": {"block": 2},
    "devices": {"compute": 500.0, "spread": 0.5, "down": 1e6, "up": 1e5, "latency": 0.05},
    "evaluate": {"every": 2, "metrics": ["accuracy"]},
}
"""An experiment of a few small clients, without its algorithm."""


def quick_run(
    config: str | Path | Mapping[str, Any], out: str | Path, *, changes: Iterable[str] = (), **options: Any
) -> Run:
    """Do what `raysim.run` does, without writing the report."""
    given = RunOptions(**options)
    experiment = read_experiment(config, changes)
    with new_location(out, given.watcher) as location:
        results = run_experiment(experiment, location, given)
    return Run(location.folder, location.folder / REPORT, tuple(results.values()), location.uri)


def quick_resume(folder: str | Path, **options: Any) -> Run:
    """Do what `raysim.resume` does, without writing the report."""
    given = RunOptions(**options)
    with existing_location(folder, given.watcher) as (location, only):
        results = resume_experiment(location, given, only)
    return Run(location.folder, location.folder / REPORT, tuple(results.values()), location.uri)


def timeless(path: Path) -> dict[str, list[Any]]:
    """Return a table of a run without the columns that depend on the machine."""
    table = pq.read_table(path)
    own = [name for name in table.column_names if not name.startswith(("seconds", "machine_"))]
    return table.select(own).to_pydict()


def metrics(folder: Path) -> dict[str, list[Any]]:
    """Return the metrics of an algorithm's folder without the columns that depend on the machine."""
    return timeless(folder / "metrics.parquet")


def assert_same(one: Path, other: Path, name: str) -> None:
    """Assert that an algorithm left the same files in two runs."""
    files = {path.name for path in (one / name).iterdir()}
    assert files == {path.name for path in (other / name).iterdir()}
    for file in sorted(files):
        if file.endswith(".safetensors"):
            assert (one / name / file).read_bytes() == (other / name / file).read_bytes(), file
        if file.endswith(".parquet"):
            # Compared as texts, because NaN does not equal itself.
            assert str(timeless(one / name / file)) == str(timeless(other / name / file)), file
    ends = [read_summary(folder / name / "summary.json") for folder in (one, other)]
    assert all(end.pop("seconds") > 0 for end in ends)
    assert ends[0] == ends[1]


class Breaks(Watcher):
    """Watcher that ends the first try of each algorithm after a round, by an error or by asking for it."""

    def __init__(self, after: int, asks: Iterable[str] | None = ()) -> None:
        """Begin without anything seen.

        Args:
            after: round after which a try ends.
            asks: algorithms that are asked to stop; None for all.
        """
        self.stop, self.notices, self.seen = Stop(), list[str](), set[str]()
        self._after, self._asks, self._name = after, asks, ""

    def begin(self, name: str, rounds: int, cohort: int, done: int = 0) -> None:
        self._name = name

    def notice(self, text: str) -> None:
        self.notices.append(text)

    def round(self, number: int, metrics: dict[str, float]) -> None:
        if number == self._after and self._name not in self.seen:
            self.seen.add(self._name)
            if self._asks is not None and self._name not in self._asks:
                raise ZeroDivisionError
            self.stop.asked = True


def broken(config: Mapping[str, Any], folder: Path, watcher: Breaks) -> Run:
    """Run an experiment, resume it as often as the watcher ends it, and return the finished run."""
    with suppress(ZeroDivisionError, StoppedError):
        return quick_run(config, folder, inline=True, watcher=watcher, stop=watcher.stop)
    for _ in range(len(ALGORITHMS) + 1):
        watcher.stop = Stop()
        with suppress(ZeroDivisionError, StoppedError):
            return quick_resume(folder, inline=True, watcher=watcher, stop=watcher.stop)
    raise AssertionError("the run does not end")
