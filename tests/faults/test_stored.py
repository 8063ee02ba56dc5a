"""Stored files damaged by drawn seeds: the same bytes, or one line; see stored.py."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.faults.stored import Stores

SEEDS = range(6)


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Stores:
    return Stores(tmp_path_factory.mktemp("stores"), ("fedbn",))


@pytest.mark.parametrize("seed", SEEDS)
def test_a_damaged_run_ends_with_the_same_bytes_or_is_refused(seed: int, stores: Stores) -> None:
    for outcome in (stores.stopped(seed), stores.going_on(seed)):
        assert not outcome.wrong, outcome


@pytest.mark.slow
def test_two_hundred_cases_end_as_they_should() -> None:
    command = [sys.executable, "-m", "tests.faults.stored", "1000", "1100"]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=3600, check=False, cwd=Path(__file__).parents[2]
    )
    assert done.returncode == 0, done.stdout
