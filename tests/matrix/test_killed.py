"""The matrix in a process that is killed after a checkpoint, and resumed: a few by default, the rest marked slow."""

from pathlib import Path

import pytest

from tests.matrix.configurations import CONFIGURATIONS, KILLED
from tests.matrix.executions import differing, run_as

OTHERS = [name for name in CONFIGURATIONS if name not in KILLED]


@pytest.mark.parametrize("name", [*KILLED, *[pytest.param(name, marks=pytest.mark.slow) for name in OTHERS]])
def test_a_killed_run_is_resumed_to_the_same_bytes(name: str, tmp_path: Path) -> None:
    assert differing({way: run_as(way, name, tmp_path / way) for way in ("inline", "killed")}) == []
