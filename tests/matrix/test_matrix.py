"""A part of the matrix on every run of the suite; `python -m tests.matrix` runs the whole."""

from pathlib import Path

import pytest

from tests.matrix.__main__ import differing
from tests.matrix.configurations import CONFIGURATIONS
from tests.matrix.executions import run, run_stopped


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_a_stopped_and_resumed_run_has_the_bytes_of_another(name: str, tmp_path: Path) -> None:
    config = CONFIGURATIONS[name]
    digests = {"inline": run(config, tmp_path / "whole"), "stopped": run_stopped(config, tmp_path / "stopped")}
    assert differing(digests, {}) == []
