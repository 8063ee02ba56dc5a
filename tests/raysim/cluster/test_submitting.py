"""A run as a job of a cluster on this machine: what comes back is what a laptop's run leaves, to the byte."""

import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import raysim
from raysim.common.names import REPORT, WALL_CLOCK
from tests.kit.grid import Grid, grid
from tests.kit.runs import quick_run

pytestmark = pytest.mark.usefixtures("own_ray")

WAIT_SECONDS = 300

EXPERIMENT = """
seed = 3
rounds = 4
[data]
dataset = "digits"
[partition]
clients = 8
test_clients = 2
[model]
hidden = [16]
norm = "batch"
[[algorithm]]
name = "submitted:flat"
fraction = 0.5
[[algorithm]]
name = "fedbn"
fraction = 0.5
[[algorithm]]
name = "radfed"
fraction = 0.5
aggregate_every = 2
"""

MODULE = """
from beside_submitted import Power
from algorithms import Algorithm, Assign, Local, Rounds, Participation, Server, Sharing

def flat(participation: Participation, local: Local, server: Server = Assign(), *, exponent: float = 0.5) -> Algorithm:
    return Algorithm(Rounds(participation), local, Sharing(), Power(exponent), server)
"""

BESIDE = """
from dataclasses import dataclass

@dataclass(frozen=True)
class Power:
    exponent: float

    def __call__(self, report):
        return report["samples"] ** self.exponent
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Grid]:
    with grid() as there:
        yield there


@pytest.fixture
def file(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "study"
    folder.mkdir()
    (folder / "exp.toml").write_text(EXPERIMENT)
    (folder / "submitted.py").write_text(MODULE)
    (folder / "beside_submitted.py").write_text(BESIDE)
    yield folder / "exp.toml"
    for name in ("submitted", "beside_submitted"):  # the next test has its own
        sys.modules.pop(name, None)


@contextmanager
def command(cluster: Grid, *arguments: object) -> Iterator["subprocess.Popen[str]"]:
    """The command line at work, its two streams in one."""
    given = [sys.executable, "-m", "raysim", *map(str, arguments)]
    # Where these tests run in the background, Ctrl-C is not heeded, and programs inherit that.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        process = subprocess.Popen(
            given, env=cluster.environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
    finally:
        signal.signal(signal.SIGINT, before)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def ran(cluster: Grid, *arguments: object) -> tuple[int, list[str]]:
    with command(cluster, *arguments) as process:
        out, _ = process.communicate(timeout=WAIT_SECONDS)
        return process.returncode, out.splitlines()


def submit(cluster: Grid, file: Path, out: Path, *more: object) -> tuple[object, ...]:
    return ("submit", file, "--address", cluster.dashboard, "--out", out, "--stage", cluster.stage, *more)


def files(run: Path) -> set[str]:
    return {str(path.relative_to(run)) for path in run.rglob("*") if path.is_file()}


def check_same(run: Path, here: Path) -> None:
    """Check that a run has the files of one here without a report: bytes, and tables but for what is the machine's."""
    assert files(run) == files(here) | {REPORT, WALL_CLOCK}
    for name in files(here):
        population = name.startswith("population/")
        if name.endswith((".safetensors", ".arrow", "manifest.json")) or (population and name.endswith(".parquet")):
            assert (run / name).read_bytes() == (here / name).read_bytes(), name
        if not population and name.endswith(".parquet"):
            assert table(run / name) == table(here / name), name


def table(path: Path) -> dict[str, list[object]]:
    whole = pq.read_table(path)
    own = [name for name in whole.column_names if not name.startswith(("seconds", "machine_"))]
    assert len(own) > 5
    columns: dict[str, list[object]] = whole.select(own).to_pydict()
    return columns


def until_gone(folder: Path) -> bool:
    deadline = time.monotonic() + 60
    while list(folder.iterdir()) and time.monotonic() < deadline:
        time.sleep(0.1)
    return not list(folder.iterdir())


def test_a_job_leaves_here_what_a_run_here_leaves(cluster: Grid, file: Path, tmp_path: Path) -> None:
    with command(cluster, *submit(cluster, file, tmp_path / "out", "--actors", 1)) as process:
        here = quick_run(file, tmp_path / "here", inline=True).folder
        out, _ = process.communicate(timeout=WAIT_SECONDS)
    assert process.returncode == 0, out
    assert "radfed: rounds 1 to 4, 3 " in out and "::raysim" not in out
    assert "bytes up" in out and f"report  {tmp_path / 'out' / 'report.html'}" in out
    check_same(tmp_path / "out", here)
    # The actors were not beside the driver, and the experiment says where things are here.
    assert set(pq.read_table(tmp_path / "out" / "flat" / "updates.parquet")["machine_actor"].to_pylist()) == {0}
    ours, theirs = ((run / "config.toml").read_text() for run in (here, tmp_path / "out"))
    assert re.sub(r"(?m)^actors = \d+\n", "", theirs) == re.sub(r"(?m)^actors = \d+\n", "", ours)
    assert until_gone(cluster.stage)


@pytest.mark.slow
def test_rays_own_command_runs_it(cluster: Grid, file: Path, tmp_path: Path) -> None:
    there = cluster.stage / "by-hand"
    inner = ["python", "-m", "raysim", "run", "exp.toml", "--out", str(there), "--actors", "2"]
    given = ["ray", "job", "submit", "--address", cluster.dashboard, "--working-dir", str(file.parent), "--", *inner]
    done = subprocess.run(
        given, env=cluster.environment, capture_output=True, text=True, timeout=WAIT_SECONDS, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    here = quick_run(file, tmp_path / "here", inline=True).folder
    check_same(there, here)
    for path in sorted(cluster.stage.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    assert until_gone(cluster.stage)


@pytest.mark.slow
def test_a_job_that_is_left_goes_on_and_is_followed_later(cluster: Grid, file: Path, tmp_path: Path) -> None:
    folder = ("--working-dir", file.parent, "--detach", "--keep")
    status, lines = ran(cluster, *submit(cluster, file, tmp_path / "out", *folder))
    assert status == 0 and lines[-1].startswith("raysim follow raysim-exp-"), lines
    again = shlex.split(lines[-1])[1:]
    job = again[1]
    status, lines = ran(cluster, "follow", job, "--address", cluster.dashboard, "--out", tmp_path / "other", "--keep")
    assert status == 0, lines
    check_same(tmp_path / "other", quick_run(file, tmp_path / "here", inline=True).folder)
    assert (cluster.stage / job / "out" / "config.toml").exists()
    status, lines = ran(cluster, *again)
    assert status == 0 and (tmp_path / "out" / "radfed" / "model.safetensors").exists()
    assert until_gone(cluster.stage)
    status, lines = ran(cluster, "follow", "raysim-nosuch", "--address", cluster.dashboard, "--out", tmp_path / "third")
    assert status == 2 and lines[-1].startswith("raysim: job 'raysim-nosuch': must be a job of the cluster"), lines


@pytest.mark.slow
def test_a_run_at_a_uri_is_kept_there(cluster: Grid, file: Path, tmp_path: Path) -> None:
    uri = (tmp_path / "stored").as_uri()
    status, lines = ran(cluster, "submit", file, "--address", cluster.dashboard, "--out", uri)
    assert status == 0 and f"stored  {uri}" in lines, "\n".join(lines[-3:])
    check_same(tmp_path / "stored", quick_run(file, tmp_path / "here", inline=True).folder)
    assert until_gone(cluster.stage)
    status, lines = ran(cluster, "submit", file, "--address", cluster.dashboard, "--out", uri)
    assert status == 2 and "exists and is not empty" in lines[-1], lines


@pytest.mark.slow
def test_a_run_that_fails_there_is_here_up_to_where_it_failed(cluster: Grid, file: Path, tmp_path: Path) -> None:
    status, lines = ran(cluster, *submit(cluster, file, tmp_path / "out", "--set", "local.lr=1e12"))
    assert status == 1 and lines[-1].startswith("raysim: flat: client "), lines
    assert f"its output is in {tmp_path / 'out'}" in lines[-1]
    assert (tmp_path / "out" / "report.html").exists() and (tmp_path / "out" / "flat" / "stopped.json").exists()


@pytest.mark.slow
def test_what_only_the_cluster_can_refuse_is_one_line(cluster: Grid, file: Path, tmp_path: Path) -> None:
    status, lines = ran(cluster, *submit(cluster, file, tmp_path / "out", "--actors", 64))
    assert status == 2 and lines[-1].startswith("raysim: fleet.actors = 64 of 1 CPU each: must fit Ray's"), lines
    assert not (tmp_path / "out").exists() and "Traceback" not in "\n".join(lines)


@pytest.mark.slow
def test_a_job_that_is_stopped_goes_on_here(cluster: Grid, file: Path, tmp_path: Path) -> None:
    long = ("--set", "rounds=600")
    with command(cluster, *submit(cluster, file, tmp_path / "out", *long)) as process:
        assert process.stdout is not None
        said = [next(line for line in process.stdout if line.startswith("flat: rounds 1 to 600"))]
        process.send_signal(signal.SIGINT)
        said.append(next(line for line in process.stdout if "Ctrl-C within" in line))
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=WAIT_SECONDS)
    assert process.returncode == 130, out
    assert f"`raysim resume {tmp_path / 'out'}` continues it" in out.splitlines()[-1], out
    assert "flat: rounds 1 to 600" not in out, "what was shown once is not shown again"
    assert not (tmp_path / "out" / "radfed" / "summary.json").exists()
    raysim.resume(tmp_path / "out", inline=True)
    check_same(tmp_path / "out", quick_run(file, tmp_path / "here", changes=["rounds=600"], inline=True).folder)


@pytest.mark.slow
def test_a_head_that_is_lost_is_told_within_a_minute(file: Path, tmp_path: Path) -> None:
    with grid() as there, command(there, *submit(there, file, tmp_path / "out", "--set", "rounds=100000")) as process:
        assert process.stdout is not None
        next(line for line in process.stdout if line.startswith("flat: rounds 1 to"))
        there.end()
        lost = time.monotonic()
        out, _ = process.communicate(timeout=WAIT_SECONDS)
        assert process.returncode == 1 and time.monotonic() - lost < 60, out
        assert f"raysim: the head at {there.dashboard} does not answer any more: once it does" in out.splitlines()[-1]
    assert not (tmp_path / "out").exists()
