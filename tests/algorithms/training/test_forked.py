"""States of the default generators, with a GPU's, which a stand-in plays."""

import pytest
import torch

from algorithms.training.forked import drawn


def test_a_draw_on_a_gpu_is_a_draw(monkeypatch: pytest.MonkeyPatch) -> None:
    without, gpu = drawn(), torch.Generator()
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_rng_state", gpu.get_state)
    before = drawn()
    assert before == drawn() != without
    torch.rand(1, generator=gpu)
    assert drawn() != before
