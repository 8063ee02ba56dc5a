"""Whatever ends a run, no process and no temporary folder that it started stays; and nobody else can reach them."""

import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import psutil
import pyarrow.parquet as pq
import pytest

from raysim.fleet import ray_cleanup

pytestmark = [
    pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="this system has no /proc"),
    pytest.mark.usefixtures("own_ray"),
]

EXPERIMENT = """
rounds = 1000000
[data]
dataset = "digits"
[partition]
clients = 8
[model]
hidden = [8]
[fleet]
actors = 1
[algorithm]
name = "radfed"
fraction = 0.5
aggregate_every = 4
"""
WAIT_SECONDS = 180


@pytest.fixture(autouse=True)
def _heard() -> Iterator[None]:
    """Programs that are started here heed Ctrl-C, even where these tests run in the background and do not."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def temporary() -> Iterator[Path]:
    """A temporary folder of a short name, which Ray's sockets need."""
    folder = Path(tempfile.mkdtemp(prefix="t", dir="/tmp"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@dataclass(frozen=True)
class Started:
    """A run of the command line with its actors at work.

    Args:
        driver: the command's process.
        processes: all others that it started; each knows when it began, so that an id that is given away again is not
            mistaken for it.
        out: the run's folder.
    """

    driver: "subprocess.Popen[str]"
    processes: list[psutil.Process]
    out: Path

    def gone(self) -> bool:
        """Whether all of them have ended, a moment after the driver."""
        return until(lambda: not any(process.is_running() for process in self.processes), 20)


def until(reached: Callable[[], bool], seconds: float = WAIT_SECONDS) -> bool:
    deadline = time.monotonic() + seconds
    while not (done := reached()) and time.monotonic() < deadline:
        time.sleep(0.05)
    return done


def command(folder: Path, temporary: Path, name: str, *more: str) -> "subprocess.Popen[str]":
    file = folder / "tiny.toml"
    file.write_text(EXPERIMENT)
    given = [sys.executable, "-m", "raysim", "run", str(file), "--out", str(folder / name), *more]
    environment = os.environ | {"TMPDIR": str(temporary), "RAY_TMPDIR": str(temporary)}
    pipe = subprocess.PIPE
    # A session of its own, as a terminal gives: its Ctrl-C goes to all processes of the group.
    return subprocess.Popen(given, env=environment, stdout=pipe, stderr=pipe, text=True, start_new_session=True)


@contextmanager
def started(folder: Path, temporary: Path, *more: str) -> Iterator[Started]:
    driver = command(folder, temporary, "run", *more)
    log = folder / "run" / "run.log"
    try:
        there = until(lambda: driver.poll() is not None or (log.exists() and "is ready" in log.read_text()))
        assert there and driver.poll() is None, driver.communicate()
        yield Started(driver, psutil.Process(driver.pid).children(recursive=True), folder / "run")
    finally:
        driver.kill()
        driver.communicate()


def names(processes: list[psutil.Process]) -> str:
    return " ".join(process.name() for process in processes)


def test_ray_is_lean_and_private_and_goes_with_a_driver_that_is_killed(tmp_path: Path, temporary: Path) -> None:
    with started(tmp_path, temporary) as run:
        folder = next(path for path in temporary.iterdir() if path.name.startswith("raysim-"))
        assert_lean(run)
        assert_private(run, folder)

        run.driver.kill()
        run.driver.wait()
        assert run.gone(), names([each for each in run.processes if each.is_running()])
        assert list(temporary.iterdir()) == []


def assert_lean(run: Started) -> None:
    """Assert that Ray started only what a run uses, at the niceness of the command."""
    assert "raylet" in names(run.processes) and names(run.processes).count("ray::ClientActor") == 1
    commands = [" ".join(process.cmdline()) for process in run.processes]
    assert not [each for each in commands if re.search(r"dashboard\.py|monitor\.py", each)]
    actors = [process for process in run.processes if process.name().startswith("ray::ClientActor")]
    assert [actor.nice() for actor in actors] == [psutil.Process(run.driver.pid).nice()]


def assert_private(run: Started, folder: Path) -> None:
    """Assert that nobody else reaches Ray, and Ctrl-C none of its processes."""
    # All of Ray is known to whoever clears up, which is the one process more.
    known = ray_cleanup.processes(str(folder))
    assert len({each.pid for each in run.processes} - set(known)) == 1

    everyone = [psutil.Process(run.driver.pid), *run.processes]
    listening = [c.laddr.ip for each in everyone for c in each.net_connections("inet") if c.status == "LISTEN"]
    assert len(listening) >= 5 and {address.removeprefix("::ffff:") for address in listening} == {"127.0.0.1"}
    for private in (folder, folder / "token"):
        assert not stat.S_IMODE(private.stat().st_mode) & 0o077
    for each in run.processes:
        shielded = each.pid not in known or bool(blocked(each) & 1 << (signal.SIGINT - 1))
        assert shielded, f"Ctrl-C reaches {each.name()}"


def blocked(process: psutil.Process) -> int:
    """The signals that a process does not take."""
    lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("SigBlk")), 16)


ENOUGH = """
from pathlib import Path

import torch


def enough(outputs, y):
    return torch.full((len(y),), float(Path(__file__).with_name("now").exists()))
"""
"""A metric that is 1 from the moment at which a file lies beside it."""


@pytest.mark.slow
def test_nothing_stays_after_success(tmp_path: Path, temporary: Path) -> None:
    (tmp_path / "mine.py").write_text(ENOUGH)
    metrics = ("--set", "partition.local_test=0.2", "--set", 'evaluate.metrics=["mine:enough"]')
    until_then = ("--set", "evaluate.every=1", "--set", "evaluate.target.local_enough=1")
    with started(tmp_path, temporary, *metrics, *until_then, "--set", "evaluate.until_target=true") as run:
        (tmp_path / "now").touch()
        assert run.driver.wait(WAIT_SECONDS) == 0
        assert run.gone() and list(temporary.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_nothing_stays_after_a_signal(tmp_path: Path, temporary: Path, number: signal.Signals) -> None:
    with started(tmp_path, temporary) as run:
        os.killpg(run.driver.pid, number)
        try:
            run.driver.wait(WAIT_SECONDS)
        finally:
            assert run.gone() and list(temporary.iterdir()) == []


@pytest.mark.slow
def test_nothing_stays_after_a_failure(tmp_path: Path, temporary: Path) -> None:
    driver = command(tmp_path, temporary, "run", "--set", "fleet.labels.site=nowhere", "--set", "rounds=3")
    _, error = driver.communicate(timeout=WAIT_SECONDS)
    assert driver.returncode == 2 and ".labels" in error.splitlines()[-1]
    assert list(temporary.iterdir()) == [] and not (tmp_path / "run").exists()


@pytest.mark.slow
def test_two_runs_side_by_side_have_the_bytes_of_a_lone_one(tmp_path: Path, temporary: Path) -> None:
    def finished(*drivers: "subprocess.Popen[str]") -> None:
        for driver in drivers:
            _, error = driver.communicate(timeout=2 * WAIT_SECONDS)
            assert driver.returncode == 0, error

    few = ("--set", "rounds=200", "--actors", "2")
    finished(command(tmp_path, temporary, "alone", *few))
    finished(*[command(tmp_path, temporary, name, *few) for name in ("one", "other")])
    model = (tmp_path / "alone" / "radfed" / "model.safetensors").read_bytes()
    losses = losses_of(tmp_path / "alone")
    for name in ("one", "other"):
        assert (tmp_path / name / "radfed" / "model.safetensors").read_bytes() == model
        np.testing.assert_array_equal(losses_of(tmp_path / name), losses)
    assert list(temporary.iterdir()) == []


def losses_of(run: Path) -> np.ndarray:
    return pq.read_table(run / "radfed" / "metrics.parquet").column("train_loss").to_numpy()
