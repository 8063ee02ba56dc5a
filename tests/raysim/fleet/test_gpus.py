"""Actors with GPUs on a machine without any are refused before Ray starts."""

import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from raysim.cli.commands import cli
from raysim.common.errors import InputError
from raysim.fleet import gpus
from raysim.fleet.gpus import has_gpu, require_gpu


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine without a GPU, and without a Ray that runs."""
    monkeypatch.setattr(gpus, "DEVICES", (str(tmp_path / "nvidia*"),))
    monkeypatch.setattr(gpus.shutil, "which", lambda name: None)
    monkeypatch.delitem(sys.modules, "ray", raising=False)
    for name in ("RAY_ADDRESS", *gpus.MASKS):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


@pytest.mark.parametrize("given", ["1", "0.5", "auto"])
def test_a_run_with_gpus_on_a_machine_without_any_is_refused_at_once(given: str, bare: Path) -> None:
    began = time.monotonic()
    arguments = ["run", "quickstart", "--out", str(bare / "run"), "--set", f"fleet.gpus_per_actor={given}"]
    done = CliRunner().invoke(cli, arguments)
    assert "must be 0, because there is no GPU on this machine" in str(done.exception)
    assert "\n" not in str(done.exception) and "ray" not in sys.modules and not (bare / "run").exists()
    assert time.monotonic() - began < 30  # two seconds on a machine that does nothing else


def test_a_cluster_a_gpu_and_no_need_of_one_are_no_mistake(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    require_gpu(0, None)
    require_gpu(1, "10.0.0.1:6379")
    with pytest.raises(InputError, match="no GPU on this machine"):
        require_gpu(1, "local")
    (bare / "nvidia0").touch()
    assert has_gpu()
    require_gpu(1, None)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with pytest.raises(InputError, match="no GPU on this machine"):
        require_gpu("auto", None)
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")
    require_gpu("auto", None)
