"""Each algorithm of the matrix in this process, ended between two rounds and resumed."""

from pathlib import Path

import pytest

from tests.matrix.configurations import BY_ALGORITHM
from tests.matrix.executions import differing, run_as


@pytest.mark.parametrize("name", BY_ALGORITHM)
def test_a_resumed_run_has_the_bytes_of_another(name: str, tmp_path: Path) -> None:
    assert differing({way: run_as(way, name, tmp_path / way) for way in ("inline", "stopped")}) == []
