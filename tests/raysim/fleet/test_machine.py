"""Settings of the process: they never change a result, and a run leaves them as they were."""

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest
import torch
from threadpoolctl import threadpool_info, threadpool_limits

from algorithms.training.forked import SETTINGS, restored
from raysim.fleet.machine import settled
from tests.kit.runs import SMALL, quick_run

EXPERIMENT = {**SMALL, "rounds": 2, "algorithm": {"name": "fedavg"}}


def read() -> list[object]:
    return [setting() for setting, _ in SETTINGS]


def test_the_settings_of_a_notebook_change_no_byte(tmp_path: Path) -> None:
    plain = quick_run(EXPERIMENT, tmp_path / "plain", inline=True)
    with restored(), ExitStack() as contexts:
        torch.set_default_dtype(torch.float64)
        torch.set_default_device("meta")
        torch.set_grad_enabled(False)
        contexts.enter_context(torch.autocast("cpu", torch.bfloat16))
        contexts.enter_context(torch.inference_mode())
        before = read()
        changed = quick_run(EXPERIMENT, tmp_path / "changed", inline=True)
        assert read() == before and torch.is_inference_mode_enabled()
    model = "fedavg/model.safetensors"
    assert (changed.folder / model).read_bytes() == (plain.folder / model).read_bytes()


def _blas_threads() -> list[int]:
    return [library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"]


def test_linear_algebra_takes_one_thread_and_gets_its_others_back() -> None:
    with threadpool_limits(2, user_api="blas"):
        before, threads = _blas_threads(), torch.get_num_threads()
        assert 2 in before  # a library may have been built or loaded for one
        with settled(2):
            assert set(_blas_threads()) == {1} and torch.get_num_threads() == 2
        assert _blas_threads() == before and torch.get_num_threads() == threads


def _older() -> None:
    torch.backends.cuda.matmul.allow_tf32 = True
    torch.backends.cudnn.allow_tf32 = True


def _newer() -> None:
    torch.backends.cuda.matmul.fp32_precision = "tf32"
    torch.backends.mkldnn.matmul.fp32_precision = "bf16"


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(_older, id="tf32"),
        pytest.param(_newer, id="fp32_precision"),
        pytest.param(lambda: torch.set_float32_matmul_precision("medium"), id="medium"),
        pytest.param(lambda: setattr(torch.backends.cudnn, "benchmark", True), id="benchmark"),
        pytest.param(lambda: setattr(torch.backends.mkldnn, "enabled", False), id="mkldnn"),
        pytest.param(lambda: setattr(torch.backends.cudnn, "enabled", False), id="cudnn"),
    ],
)
def test_libraries_compute_with_all_bits_and_are_restored(change: Callable[[], object]) -> None:
    with restored():
        change()
        before = read()
        with settled(1):
            assert not torch.backends.cuda.matmul.allow_tf32 and not torch.backends.cudnn.allow_tf32
            assert torch.get_float32_matmul_precision() == "highest"
            assert torch.backends.mkldnn.matmul.fp32_precision == "ieee"
            assert not torch.backends.cudnn.benchmark
            assert torch.backends.cudnn.enabled and torch.backends.mkldnn.enabled
        assert read() == before
