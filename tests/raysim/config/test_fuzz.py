"""A configuration is refused in one line that leaves nothing, or runs: never a traceback, never a hang."""

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from partitioning.cli.exit_status import run_command
from raysim.cli.commands import cli
from tests.raysim.config.configurations import case

SECONDS = 60
"""How long a case may take; all are tiny, and this machine may be busy."""

STAGES = ("reading the data", "starting the fleet", "writing the report", "notice: ", "Decoding", "decoding")
FAILS = ("memory", "finite", "nan", "NaN", "inf")
"""What a run may end of that begins well: 1 is then its status."""


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng = np.random.default_rng(0)
    path = tmp_path_factory.mktemp("fuzz") / "table.parquet"
    columns = {f"x{i}": rng.normal(size=80) for i in range(3)} | {"label": rng.integers(0, 3, 80)}
    pq.write_table(pa.table(columns), path)
    return path


@contextmanager
def limited(seconds: int) -> Iterator[None]:
    def late(*_: object) -> None:
        raise TimeoutError(f"not done within {seconds} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def check(number: int, table: Path, folder: Path, capsys: pytest.CaptureFixture[str]) -> int:
    drawn = case(number, table)
    file, modules = folder / "experiment.toml", set(sys.modules)
    file.write_bytes(drawn.text.encode("utf-8", "surrogatepass"))
    sets = [word for change in drawn.changes for word in ("--set", change)]
    with pytest.raises(SystemExit) as done, limited(SECONDS):
        run_command(cli, "raysim", ["run", str(file), "--inline", "--out", str(folder / "run"), *sets])
    status, errors = int(done.value.code or 0), capsys.readouterr().err.splitlines()
    what = f"case {number}: status {status}, {errors}\n{drawn.changes}\n{drawn.text[:2000]}"
    assert "Traceback" not in "\n".join(errors), what
    if status == 0:
        assert list(folder.glob("run/*/model.safetensors")), what
        return status
    *before, last = errors
    assert last.startswith("raysim: ") and all(line.startswith(STAGES) or "rounds" in line for line in before), what
    assert status == 2 or (status == 1 and any(word in last for word in FAILS)), what
    assert status == 1 or [path.name for path in folder.iterdir()] == ["experiment.toml"], what
    assert not {name.partition(".")[0] for name in sys.modules.keys() - modules} & {"nosuch", "a", "a b"}, what
    return status


@pytest.mark.parametrize("first", range(0, 40, 20))
def test_wrong_configurations(
    first: int, table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    many(range(first, first + 20), table, tmp_path, capsys, monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(40, 1240, 100))
def test_many_wrong_configurations(
    first: int, table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    many(range(first, first + 100), table, tmp_path, capsys, monkeypatch)


def many(
    numbers: range, table: Path, folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAYSIM_CACHE", str(folder / "cache"))
    statuses = set()
    for number in numbers:
        own = folder / str(number)
        own.mkdir()
        monkeypatch.chdir(own)
        statuses.add(check(number, table, own, capsys))
    assert statuses >= {0, 2}
