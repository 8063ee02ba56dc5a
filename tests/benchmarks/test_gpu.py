"""The script for a GPU works on the CPU: every part runs for a round and writes its rows."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.benchmarks.gpu import executions, profile
from tests.benchmarks.gpu.__main__ import PARTS, main
from tests.benchmarks.gpu.setting import Setting, attempt
from tests.benchmarks.gpu.table import Table

NEED_A_GPU = {
    ("peers", "all"),
    *(("auto", case) for case in ("context of a process", "small: mlp", "large: ResNet-20")),
}
"""Rows that are errors on the CPU."""


@pytest.fixture
def setting(tmp_path: Path) -> Setting:
    return Setting("cpu", rounds=1, few=1, small=True, work=tmp_path)


def test_a_table_keeps_the_last_row_of_a_case(tmp_path: Path) -> None:
    Table(tmp_path).add("one", "a", seconds=1.0)
    Table(tmp_path).add("two", "a", error="x | y")
    Table(tmp_path).add("one", "a", seconds=1.23456789)
    rows = json.loads((tmp_path / "gpu.json").read_text())
    assert rows == [{"part": "two", "case": "a", "error": "x | y"}, {"part": "one", "case": "a", "seconds": 1.2346}]
    assert "| a | x \\| y |" in (tmp_path / "gpu.md").read_text()


def test_an_error_is_a_row_and_no_end(tmp_path: Path) -> None:
    def fails() -> dict[str, float]:
        raise SystemExit("no such thing")

    table = Table(tmp_path)
    assert attempt(lambda case, **figures: table.add("part", case, **figures), "first", fails) is None
    assert table.rows == [{"part": "part", "case": "first", "error": "SystemExit: no such thing"}]


def test_executions_agree(tmp_path: Path, setting: Setting) -> None:
    table = Table(tmp_path / "out")
    executions.executions(setting, lambda case, **figures: table.add("executions", case, **figures))
    assert not [row for row in table.rows if "error" in row]
    assert max(row["difference"] for row in table.rows) < 1e-5


def test_a_round_is_profiled(tmp_path: Path, setting: Setting) -> None:
    table = Table(tmp_path / "out")
    profile.profiles(setting, lambda case, **figures: table.add("profile", case, **figures))
    last = table.rows[-1]
    assert (last["case"], last["kernels"]) == ("load B", 0)  # no GPU, no kernels
    assert last["seconds a round"] > 0
    assert len([row for row in table.rows if "operator" in row]) == profile.TOP


@pytest.mark.slow
def test_all_parts_in_one_command(tmp_path: Path) -> None:
    options = ["--device", "cpu", "--rounds", "1", "--small", "--out", str(tmp_path)]
    environ = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    subprocess.run([sys.executable, "-m", "tests.benchmarks.gpu", *options], check=True, env=environ)
    rows = json.loads((tmp_path / "gpu.json").read_text())
    assert list(dict.fromkeys(row["part"] for row in rows)) == list(PARTS)
    assert {(row["part"], row["case"]) for row in rows if "error" in row} == NEED_A_GPU
    named = next(row["block named"] for row in rows if row["part"] == "memory")
    assert named < 12
    assert [row["equal"] for row in rows if row["part"] == "bytes" and "equal" in row] == [True, True]


def test_an_unknown_part_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["gpu", "--parts", "executions,nothing", "--out", str(tmp_path)])
    with pytest.raises(SystemExit, match=r"^--parts = executions,nothing: must name rounds, executions, bytes, "):
        main()
