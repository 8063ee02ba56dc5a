"""`raysim devices`: its tables are those that a run takes."""

import pickle
from functools import partial
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.kit.commands import Cli, run_raysim


@pytest.fixture
def raysim(capsys: pytest.CaptureFixture[str]) -> Cli:
    return partial(run_raysim, capsys)


def test_make_and_run(raysim: Cli, tmp_path: Path) -> None:
    table = tmp_path / "phones.parquet"
    kinds = ("--kind", "old=1,50,1e5,1e5", "--kind", "new=3,500,1e6,1e6")
    status, out, _ = raysim("devices", "make", "--clients", 8, "--out", table, "--availability", "always", *kinds)
    assert status == 0 and out.startswith(f"written {table}\nnext    raysim run FILE --set devices.table={table}")
    assert set(pq.read_table(table)["device"].to_pylist()) <= {"old", "new"}
    text = 'rounds = 1\n[data]\ndataset = "digits"\n[partition]\nclients = 8\n[model]\nhidden = [4]\n'
    (tmp_path / "x.toml").write_text(text)
    run = ("run", tmp_path / "x.toml", "--inline", "--out", tmp_path / "run", "--set", f"devices.table={table}")
    assert raysim(*run)[0] == 0
    metrics = pq.read_table(tmp_path / "run" / "fedavg" / "metrics.parquet")
    assert metrics["simulated_seconds"][0].as_py() > 0


def test_read(raysim: Cli, tmp_path: Path) -> None:
    (tmp_path / "capacity").write_bytes(pickle.dumps({1: {"computation": 10.0, "communication": 80.0}}))
    done = raysim("devices", "read", "--capacity", tmp_path / "capacity", "--out", tmp_path / "t.parquet")
    assert done[0] == 0 and pq.read_table(tmp_path / "t.parquet").num_rows == 1


@pytest.mark.parametrize("command", ["make --clients 3", "read --capacity capacity"])
def test_a_file_that_is_there_stays(raysim: Cli, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("capacity").write_bytes(pickle.dumps({1: {"computation": 10.0, "communication": 80.0}}))
    Path("mine.parquet").write_bytes(b"mine")
    status, _, err = raysim("devices", *command.split(), "--out", "mine.parquet")
    assert status == 2 and err == "raysim: mine.parquet exists: must be a new file; name another, or remove it\n"
    assert Path("mine.parquet").read_bytes() == b"mine"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["make", "--clients", "0", "--out", "x.parquet"], "--clients"),
        (["make", "--clients", "3", "--out", "x.csv"], "x.csv does not end in .parquet"),
        (["make", "--clients", "3", "--out", "nosuch/x.parquet"], "nosuch is not a folder"),
        (["make", "--clients", "3", "--out", "x.parquet", "--kind", "phone"], "--kind = 'phone': must be NAME="),
        (["read", "--capacity", "nosuch", "--out", "x.parquet"], "nosuch"),
    ],
)
def test_wrong_input(raysim: Cli, arguments: list[str], message: str) -> None:
    status, _, err = raysim("devices", *arguments)
    assert status == 2 and message in err and len(err.splitlines()) == 1
