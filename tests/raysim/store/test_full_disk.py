"""A full disk is told in one line, ends the command with 1, and leaves no file that is only begun."""

import os
import resource
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from partitioning.cli.commands import main as partitioning_main
from partitioning.cli.exit_status import run_command
from raysim.cli.commands import cli
from raysim.common.errors import OwnCodeError
from tests.kit.own_code import own_module
from tests.kit.runs import quick_run

Disk = Callable[[int], Path]
Command = Callable[..., str]


@pytest.fixture
def disk() -> Iterator[Disk]:
    """Makes a disk of so many KiB, which takes the right to mount one."""
    mounted: list[Path] = []

    def make(size: int) -> Path:
        folder = Path(tempfile.mkdtemp(prefix="small-"))
        options = ["-t", "tmpfs", "-o", f"size={size}k", "tmpfs", str(folder)]
        if shutil.which("mount") is None or subprocess.run(["mount", *options], check=False).returncode:
            folder.rmdir()
            pytest.skip("this user cannot mount a small disk")
        mounted.append(folder)
        return folder

    yield make
    for folder in mounted:
        subprocess.run(["umount", "-l", str(folder)], check=True)
        folder.rmdir()


@pytest.fixture
def fails(capsys: pytest.CaptureFixture[str]) -> Command:
    """Runs a command that fails by a full disk; gives the one line that says so."""

    def run(program: str, *arguments: object) -> str:
        given = [str(argument) for argument in arguments]
        with pytest.raises(SystemExit) as done:
            partitioning_main(given) if program == "partitioning" else run_command(cli, "raysim", given)
        errors = capsys.readouterr().err
        last = errors.splitlines()[-1]
        assert done.value.code == 1 and "Traceback" not in errors and "Logging error" not in errors
        assert last.startswith(f"{program}: ") and "No space left on device" in last
        assert "MB are free there): make room, or choose another place" in last
        return last

    return run


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng = np.random.default_rng(0)
    path = tmp_path_factory.mktemp("full") / "table.parquet"
    pq.write_table(pa.table({f"x{i}": rng.normal(size=2000) for i in range(5)} | {"label": np.arange(2000) % 3}), path)
    return path


def experiment(
    folder: Path, table: Path, algorithm: str = "fedavg", hidden: int = 4, rounds: int = 1, every: int = 10**6
) -> Path:
    path = folder / "experiment.toml"
    path.write_text(
        f'rounds = {rounds}\n[data]\ndataset = "file:{table}"\n[partition]\nclients = 4\n'
        f'[checkpoint]\nevery = {every}\n[model]\nhidden = [{hidden}]\nnorm = "batch"\n[local]\nsteps = 1\n'
        f'[algorithm]\nname = "{algorithm}"\n'
    )
    return path


def begun(folder: Path) -> list[str]:
    """Files that are only begun: drafts and such have names that nobody lists."""
    return [str(path) for path in folder.rglob("*") if path.name.startswith(".")]


def test_a_population_that_does_not_fit(disk: Disk, fails: Command, table: Path, tmp_path: Path) -> None:
    small = disk(64)
    told = fails("raysim", "run", experiment(tmp_path, table), "--inline", "--out", small / "run")
    assert "run/population cannot be written" in told
    assert sorted(path.name for path in (small / "run").iterdir()) == ["config.toml", "run.log"] and begun(small) == []


@pytest.mark.parametrize(("every", "first"), [(10**6, ".journal"), (1, "")])
def test_rounds_that_do_not_fit_leave_those_before(
    every: int, first: str, disk: Disk, fails: Command, table: Path, tmp_path: Path
) -> None:
    small = disk(350)
    file = experiment(tmp_path, table, rounds=3000, every=every)
    told = fails("raysim", "run", file, "--inline", "--out", small / "run")
    assert f"{first} cannot be written" in told and begun(small) == []
    for name in ("metrics", "updates"):
        with pa.OSFile(str(small / "run" / "fedavg" / f"{name}.journal")) as file, pa.ipc.open_stream(file) as stream:
            rounds = stream.read_all()["round"].to_pylist()
        assert len(set(rounds)) > 5 and set(rounds) == set(range(1, max(rounds) + 1))
    assert told.removeprefix("raysim: ") in (small / "run" / "run.log").read_text() or os.statvfs(small).f_bavail == 0


def test_a_model_that_does_not_fit(disk: Disk, fails: Command, table: Path, tmp_path: Path) -> None:
    small = disk(500)
    told = fails("raysim", "run", experiment(tmp_path, table, hidden=10_000), "--inline", "--out", small / "run")
    assert "fedavg/model.safetensors cannot be written" in told and begun(small) == []
    assert sorted(path.name for path in (small / "run" / "fedavg").iterdir()) == ["metrics.journal", "updates.journal"]


def test_personal_state_that_does_not_fit(disk: Disk, fails: Command, table: Path, tmp_path: Path) -> None:
    small = disk(500)
    file = experiment(tmp_path, table, "fedbn", hidden=10_000)
    assert "fedbn/personal cannot be written" in fails("raysim", "run", file, "--inline", "--out", small / "run")


@pytest.mark.slow
def test_personal_state_of_actors(disk: Disk, fails: Command, table: Path, tmp_path: Path) -> None:
    small = disk(3000)
    # The driver's own blocks fit; actors that go on do not.
    file = experiment(tmp_path, table, "fedbn", hidden=300, rounds=10**6)
    assert "cannot be written" in fails("raysim", "run", file, "--actors", 2, "--out", small / "run")


FILLS = """
import errno
import os


def filled(outputs, labels):
    if len(labels) > 50:  # not in the trial before the run
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/mnt/mine")
    return labels.double()
"""


def test_a_disk_that_a_user_fills_is_not_the_run_s(table: Path, tmp_path: Path) -> None:
    file = experiment(tmp_path, table)
    changes = ['evaluate.metrics=["full_metric:filled"]', "evaluate.every=1"]
    with own_module(tmp_path, "full_metric", FILLS), pytest.raises(OwnCodeError, match=r"'/mnt/mine' \(.*full_metric"):
        quick_run(file, tmp_path / "run", changes=changes, inline=True)


def test_a_cache_that_does_not_fit(disk: Disk, fails: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = disk(1000)
    monkeypatch.setenv("RAYSIM_CACHE", str(small / "cache"))
    sets = ["--set", "data.image_size=32", "--set", "rounds=0"]
    told = fails("raysim", "run", "quickstart", "--inline", "--out", tmp_path / "run", *sets)
    assert f"{small}/cache/decoded/" in told
    assert {path.suffix for path in small.rglob("*") if path.is_file()} <= {".lock"}


def test_exports_reports_and_pictures_that_do_not_fit(disk: Disk, fails: Command, table: Path, tmp_path: Path) -> None:
    quick_run(experiment(tmp_path, table), tmp_path / "run", inline=True)
    small, population = disk(4), tmp_path / "run" / "population"
    (small / "report.html").write_text("the one before")
    assert "report.html" in fails("raysim", "report", tmp_path / "run", "--out", small / "report.html")
    assert (small / "report.html").read_text() == "the one before"
    assert "digits.parquet" in fails("raysim", "export", "digits", small / "digits.parquet")
    assert "picture.png" in fails("partitioning", "plot", population, "--out", small / "picture.png")
    made = fails("partitioning", "make", table, "--out", small / "p", "--scheme", "iid", "--clients", 4)
    assert f"{small}/p cannot be written" in made
    assert [path.name for path in small.iterdir()] == ["report.html"]


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_files_that_must_not_grow_further(table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = ["make", str(table), "--out", str(tmp_path / "p"), "--scheme", "iid", "--clients", "4"]
    with pytest.raises(SystemExit) as done, files_of_at_most(30_000):
        partitioning_main(given)
    assert done.value.code == 1
    assert "/p cannot be written (File too large; " in capsys.readouterr().err.splitlines()[-1]
    assert list(tmp_path.iterdir()) == []
