"""The estimate of a run's rest, by which Ray starts or does not."""

import os
import runpy
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import ray

from raysim.common.errors import StoppedError
from raysim.fleet import machine, outlook
from raysim.fleet.outlook import Outlook
from raysim.simulation.stop import Stop
from raysim.watching.progress import Watcher
from tests.kit.runs import SMALL, quick_run, timeless

ONE_ACTOR: dict[str, Any] = {
    **{key: value for key, value in SMALL.items() if key != "devices"},
    "fleet": {"cpus_per_actor": os.cpu_count()},
    "algorithm": {"name": "fedavg", "cohort": 4},
    "evaluate": {"every": 0},
}
"""An experiment that leaves the number of actors to raysim, which is one."""


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr(outlook.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(outlook, "WORTH_SECONDS", 10.0)
    monkeypatch.setattr(outlook, "LONG_SECONDS", 30.0)
    return now


@pytest.mark.parametrize(
    ("worth", "seconds", "updates", "is_long"),
    [(10, 2, 69, True), (10, 2, 68, False), (10, 0.5, 10_000, False), (20, 2, 119, True), (20, 2, 118, False)],
)
def test_a_run_is_long_if_the_updates_left_take_as_long_as_actors_are_worth(
    worth: float,
    seconds: float,
    updates: int,
    is_long: bool,
    clock: list[float],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """After 8 updates that begin the measurement, 10 more take 2 s: 51 left take more than 10 s, 101 more than 20 s."""
    monkeypatch.setattr(outlook, "WORTH_SECONDS", worth)
    run = Outlook(updates)
    assert not run.is_long
    run.add(8)
    assert not run.is_long, "nothing is measured yet"
    clock[0] += seconds
    run.add(10)
    assert run.is_long == is_long


@pytest.mark.parametrize(("cpu", "worth", "long"), [(1.5, 15.0, 30.0), (4.0, 40.0, 40.0), (600.0, 100.0, 100.0)])
def test_slow_imports_make_actors_worth_less(
    cpu: float, worth: float, long: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(time, "process_time", lambda: cpu)
        loaded = runpy.run_path(str(machine.__file__))["LOADED_SECONDS"]
    monkeypatch.setattr(machine, "LOADED_SECONDS", loaded)
    found = runpy.run_path(str(outlook.__file__))
    assert (found["WORTH_SECONDS"], found["LONG_SECONDS"]) == (worth, long)


@pytest.mark.parametrize("blocks", [0, 1])
def test_a_run_is_long_if_its_second_block_does_not_end(blocks: int, clock: list[float]) -> None:
    run = Outlook(1_000)
    for _ in range(blocks):
        run.add(5)
    clock[0] += 5
    assert not run.is_long
    clock[0] += 0.1
    assert run.is_long


def test_a_run_that_lasts_is_long_whatever_its_estimate_says(clock: list[float]) -> None:
    """Its evaluations, or the client updates of a later algorithm, take longer."""
    run = Outlook(10)
    for _ in range(10):
        run.add(1)
        clock[0] += 3
    assert not run.is_long
    clock[0] += 0.1
    assert run.is_long


def test_updates_of_an_earlier_command_do_not_count(clock: list[float]) -> None:
    run = Outlook(1_000)
    run.skip(960)
    run.add(8)
    clock[0] += 2
    run.add(10)
    assert not run.is_long


READY = "client actor 0 is ready"
DEFERRED = "training in this process; Ray starts if this takes long"


class UntilActors(Watcher):
    """Stops a run after the first round with an actor; before that its rounds are slow, and leave the cores to it."""

    def __init__(self, log: Path) -> None:
        self.stop, self.texts, self._log = Stop(), list[str](), log
        self._current: Callable[[], str] = str

    def beside(self, current: Callable[[], str]) -> None:
        self._current = current
        self.texts.append(current())

    def round(self, number: int, metrics: dict[str, float]) -> None:
        self.texts.append(self._current())
        self.stop.asked = READY in self._log.read_text(encoding="utf-8")
        time.sleep(0 if self.stop.asked else 1)


@pytest.mark.usefixtures("own_ray")
def test_a_short_run_is_done_without_ray(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for limit in ("WORTH_SECONDS", "UNSEEN_SECONDS", "LONG_SECONDS"):  # on a busy machine too it is short
        monkeypatch.setattr(outlook, limit, 600.0)
    watcher = UntilActors(tmp_path / "run" / "run.log")
    quick_run(ONE_ACTOR, tmp_path / "run", watcher=watcher)
    quick_run(ONE_ACTOR, tmp_path / "inline", inline=True)
    assert set(watcher.texts) == {DEFERRED}
    assert not ray.is_initialized()
    updates = "fedavg/updates.parquet"
    assert set(pq.read_table(tmp_path / "run" / updates)["machine_actor"].to_pylist()) == {-1}
    assert timeless(tmp_path / "run" / updates) == timeless(tmp_path / "inline" / updates)


@pytest.mark.usefixtures("own_ray")
def test_ray_starts_in_a_run_that_proves_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outlook, "WORTH_SECONDS", 10.0)  # this process may have computed long before it imported torch
    watcher = UntilActors(tmp_path / "run" / "run.log")
    with pytest.raises(StoppedError):
        quick_run({**ONE_ACTOR, "rounds": 1_000}, tmp_path / "run", watcher=watcher, stop=watcher.stop)
    log = (tmp_path / "run" / "run.log").read_text(encoding="utf-8")
    assert log.index("fedavg: round 1 in") < log.index(READY), "the driver begins at once"
    assert list(dict.fromkeys(watcher.texts)) == [DEFERRED, "starting Ray; training here meanwhile", ""]
