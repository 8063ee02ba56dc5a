"""Hostile data files, drawn by seeds: a command reads them or refuses them in one line, in bounded time and memory."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.faults.files.harness import KINDS, survive

FEW = [2, 5, 9, 19]
"""Bytes cut off, a file of another form, odd types, and billions of rows."""


@pytest.mark.parametrize("seed", FEW)
def test_a_hostile_file_is_read_or_refused(seed: int, tmp_path: Path) -> None:
    outcome = survive(seed, tmp_path)
    assert not outcome.wrong, f"{outcome.kind}: {outcome.what}: {outcome.wrong}"


def test_each_kind_comes_in_its_turn() -> None:
    assert len(set(KINDS)) == len(KINDS)
    assert max(FEW) < len(KINDS)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(1000, 2000, 250))
def test_a_thousand_hostile_files(first: int) -> None:
    command = [sys.executable, "-m", "tests.faults.files", "--first", str(first), "--count", "250"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=7200, check=False)
    assert done.returncode == 0, done.stdout[-5000:]
