"""The local cluster, really started: a run on it gives the bytes of a run without it, and Ctrl-C leaves nothing."""

import re
import runpy
import signal
import socket
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from click.testing import CliRunner

import raysim
from raysim.fleet import ray_cleanup
from tests.kit.launch_files import CLUSTERS, ROOT

SCRIPT = CLUSTERS / "local" / "cluster.py"
SETTINGS = ["rounds=2", "evaluate.every=0"]


def start(*arguments: str, log: Path) -> "subprocess.Popen[bytes]":
    with log.open("wb") as file:
        return subprocess.Popen([sys.executable, str(SCRIPT), *arguments], cwd=ROOT, stdout=file, stderr=file)


def status(there: "subprocess.Popen[bytes]") -> int:
    """How it ended; a machine that is busy takes minutes."""
    try:
        return there.wait(600)
    finally:
        there.kill()
        there.wait()


def models(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*.safetensors")}


@pytest.mark.slow  # by default jobs are sent to it, see tests/raysim/cluster
def test_a_run_on_it_and_its_end(tmp_path: Path) -> None:
    changes = [part for each in SETTINGS for part in ("--set", each)]
    run = [sys.executable, "-m", "raysim", "run", "quickstart", "--actors", "2", "--out", str(tmp_path / "run")]
    log, ended = tmp_path / "log", tmp_path / "ended"
    shell = ["sh", "-c", '"$@" && touch "$0" && exec sleep 600', str(ended), *run, *changes]
    there = start("--no-jobs", "--", *shell, log=log)
    try:
        here = raysim.run("quickstart", tmp_path / "here", changes=SETTINGS, inline=True)
        while not ended.exists() and there.poll() is None:
            time.sleep(0.1)
        assert ended.exists(), log.read_text()
        (folder,) = re.findall(r"RAY_TMPDIR=(\S+)", log.read_text())
        assert len(ray_cleanup.processes(folder)) > 6, "a head and two nodes"
        assert models(tmp_path / "run") == models(here.folder) != {}
        there.send_signal(signal.SIGINT)
        assert there.wait(60) == 128 + signal.SIGINT
    finally:
        there.kill()
        there.wait()
    assert ray_cleanup.processes(folder) == []
    assert not Path(folder).exists()


@pytest.fixture
def taken() -> Iterator[None]:
    """The dashboard's usual port is another's."""
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with suppress(OSError):  # it is another's already
            other.bind(("127.0.0.1", 8265))
            other.listen()
        yield


@pytest.mark.slow
@pytest.mark.usefixtures("taken")
def test_a_job_on_it(tmp_path: Path) -> None:
    log, out = tmp_path / "log", tmp_path / "run"
    run = [sys.executable, "-m", "raysim", "run", "quickstart", "--set", "rounds=2", "--actors", "2", "--out", str(out)]
    ray = str(Path(sysconfig.get_path("scripts")) / "ray")
    labels = ["--labels", "site=a", "--labels", "site=b"]
    assert status(start(*labels, "--", ray, "job", "submit", "--address", "{jobs}", "--", *run, log=log)) == 0
    assert (out / "report.html").exists()


@pytest.mark.slow
def test_nothing_is_left_where_it_is_killed(tmp_path: Path) -> None:
    log, begun = tmp_path / "log", tmp_path / "begun"
    there = start("--no-jobs", "--", "sh", "-c", f"touch {begun}; exec sleep 600", log=log)
    while not begun.exists():
        assert there.poll() is None, log.read_text()
        time.sleep(0.1)
    (folder,) = re.findall(r"RAY_TMPDIR=(\S+)", log.read_text())
    there.kill()
    there.wait()
    for _ in range(300):
        if not Path(folder).exists():
            break
        time.sleep(0.1)
    assert not Path(folder).exists() and ray_cleanup.processes(folder) == []


@pytest.mark.slow
def test_the_status_is_the_commands(tmp_path: Path) -> None:
    assert status(start("--no-jobs", "--nodes", "1", "--", "sh", "-c", "exit 3", log=tmp_path / "log")) == 3


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--nodes", "3", "--labels", "site=a", "--labels", "site=b"], "must be given once or 3 times"),
        (["--labels", "site"], "must be KEY=VALUE"),
        (["--nodes", "0"], "0 is not in the range"),
    ],
)
def test_wrong_options_are_refused_at_once(options: list[str], said: str) -> None:
    done = CliRunner().invoke(runpy.run_path(str(SCRIPT))["main"], options)
    assert done.exit_code == 2 and said in done.output
