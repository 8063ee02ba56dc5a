"""Ways to run a configuration, and the digests of what it leaves."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable, Mapping
from hashlib import sha256
from multiprocessing import get_context
from pathlib import Path
from threading import Event
from typing import Any

import pytest

import raysim
from algorithms.names import ALGORITHMS
from raysim.common.errors import StoppedError
from raysim.simulation.api import read_experiment, resume_experiment, run_experiment
from raysim.simulation.options import RunOptions
from raysim.simulation.stop import Stop
from raysim.store.location import RunLocation
from raysim.store.summary import read_summary
from raysim.watching.progress import Watcher
from tests.kit.runs import timeless
from tests.matrix.configurations import ASKED, CONFIGURATIONS

UNLIKE = ("algorithm", "seconds", "machine_traffic")
"""Keys of a summary that may differ between ways, or with the text of the code."""

STOPPED_AFTER, COPIED_AFTER = 2, 3

ENDED_SECONDS = 120
"""Time that a process may take that is to be killed."""

FORKS = get_context("forkserver")
FORKS.set_forkserver_preload(["tests.matrix.executions"])  # else every process would import torch


class Ending(Watcher):
    """Watcher that asks a run to stop after a round."""

    def __init__(self, stop: Stop) -> None:
        self._stop = stop

    def round(self, round_number: int, metrics: dict[str, float]) -> None:
        self._stop.asked |= round_number >= STOPPED_AFTER


class Checkpointed(Watcher):
    """Watcher that knows of the first checkpoint, which is there by the third round."""

    def __init__(self) -> None:
        self.written = Event()


class Killing(Checkpointed):
    """Watcher that kills its process after the first round that finds a checkpoint."""

    def round(self, round_number: int, metrics: dict[str, float]) -> None:
        if round_number >= COPIED_AFTER:
            self.written.wait(ENDED_SECONDS)
        if self.written.is_set():
            os.kill(os.getpid(), signal.SIGKILL)


class Copying(Checkpointed):
    """Watcher that copies its run's folder after a round, as a kill would leave it then."""

    def __init__(self, folder: Path, copy: Path, after: int) -> None:
        super().__init__()
        self._folder, self._copy, self._after = folder, copy, after

    def round(self, round_number: int, metrics: dict[str, float]) -> None:
        if round_number == self._after:
            assert self.written.wait(ENDED_SECONDS)
            shutil.copytree(self._folder, self._copy)


class Telling(RunLocation):
    """Location that tells a `Checkpointed` watcher of its first checkpoint."""

    def after_checkpoint(self, watcher: Watcher) -> Callable[[], None]:
        assert isinstance(watcher, Checkpointed)
        return watcher.written.set


class Resumed(Watcher):
    """Watcher that keeps what a run says."""

    def __init__(self) -> None:
        self.notices: list[str] = []

    def notice(self, text: str) -> None:
        self.notices.append(text)


def run_as(way: str, name: str, folder: Path, fleet: raysim.Actors | None = None, gpus: float = 0) -> dict[str, str]:
    """Run a configuration without its report; return its digests.

    Args:
        way: "inline"; "stopped", which is inline as well, asked to stop and resumed; "killed", in a process
            of its own that is killed after a checkpoint, and resumed in this one; or any other name, on actors.
        name: of the configuration.
        folder: new folder of the run.
        fleet: the actors.
        gpus: part of a GPU that each of them has.
    """
    if way == "stopped":
        return _run_stopped(CONFIGURATIONS[name], folder)
    if way == "killed":
        return _run_killed(name, folder)
    options = RunOptions(inline=fleet is None, fleet=fleet)
    config = CONFIGURATIONS[name]
    if gpus:
        config = {**config, "fleet": {**config.get("fleet", {}), "gpus_per_actor": gpus}}
    run_experiment(read_experiment(config), RunLocation(folder, str(folder)), options)
    return digests(folder)


def resumed(name: str, folder: Path) -> list[str]:
    """Return the difference between a configuration's run and the same run resumed.

    The resumed run is a copy made amid the first one, or a run that was asked to stop.
    """
    if name in ASKED:
        return differing({way: run_as(way, name, folder / way) for way in ("inline", "stopped")})
    config, whole, copy = CONFIGURATIONS[name], folder / "inline", folder / "copy"
    between = config["algorithm"].get("aggregate_every", 1)
    # The only checkpoint until the copy is that of the third round, where most options have a state. The rows of a
    # fourth round are cut, unless its own checkpoint would be on its way.
    config = {**config, "checkpoint": {"every": COPIED_AFTER // between}}
    options = RunOptions(inline=True, watcher=Copying(whole, copy, COPIED_AFTER + (between == 1)))
    run_experiment(read_experiment(config), Telling(whole, str(whole)), options)
    return differing({"inline": digests(whole), "copy": _resumed(copy, config["rounds"])})


def differing(digests: Mapping[str, Mapping[str, str]], frozen: Mapping[str, str] | None = None) -> list[str]:
    """Return what differs between the ways to run a configuration, or from the frozen digests of it."""
    expected = next(iter(digests.values())) if frozen is None else frozen
    return [
        f"{way}: {part}"
        for way, found in digests.items()
        for part in sorted(expected.keys() | found.keys())
        if found.get(part) != expected.get(part)
    ]


def _run_stopped(config: Mapping[str, Any], folder: Path) -> dict[str, str]:
    location, stop = RunLocation(folder, str(folder)), Stop()
    ending = RunOptions(inline=True, watcher=Ending(stop), stop=stop)
    with pytest.raises(StoppedError):
        run_experiment(read_experiment(config), location, ending)
    return _resumed(folder, config["rounds"])


def _run_killed(name: str, folder: Path) -> dict[str, str]:
    process = FORKS.Process(target=_kill_amid, args=(name, folder))
    process.start()
    process.join(ENDED_SECONDS)
    process.kill()
    assert process.exitcode == -signal.SIGKILL
    (algorithm,) = (path for path in folder.iterdir() if path.name in ALGORITHMS)
    assert not (algorithm / "summary.json").exists()
    return _resumed(folder, CONFIGURATIONS[name]["rounds"])


def _kill_amid(name: str, folder: Path) -> None:
    """Run a configuration in a process that does not survive it."""
    options = RunOptions(inline=True, watcher=Killing())
    run_experiment(read_experiment(CONFIGURATIONS[name]), Telling(folder, str(folder)), options)


def _resumed(folder: Path, rounds: int) -> dict[str, str]:
    resumed = Resumed()
    resume_experiment(RunLocation(folder, str(folder)), RunOptions(inline=True, watcher=resumed))
    (goes_on,) = (text for text in resumed.notices if "continues after round" in text)
    assert 1 <= int(goes_on.rpartition(" ")[2]) < rounds, goes_on
    return digests(folder)


def digests(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of what a run left: its models, its tables, its summary, and the names of its files."""
    (algorithm,) = (path for path in folder.iterdir() if path.name in ALGORITHMS)
    found = {"files": _sha256(sorted(path.name for path in algorithm.iterdir()))}
    for path in algorithm.glob("*.safetensors"):
        found[path.stem] = sha256(path.read_bytes()).hexdigest()
    for path in algorithm.glob("*.parquet"):
        # Compared as text, for an undefined number is equal to no other.
        found[path.stem] = _sha256(sorted(timeless(path).items()))
    summary = read_summary(algorithm / "summary.json")
    found["summary"] = _sha256(sorted((key, value) for key, value in summary.items() if key not in UNLIKE))
    return found


def _sha256(value: object) -> str:
    return sha256(repr(value).encode()).hexdigest()
