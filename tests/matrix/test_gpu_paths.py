"""The paths of a GPU on the CPU: stacks of a GPU's choice, replayed steps, models loaded and summed as on a device."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from algorithms import choose, lanes_of
from algorithms.training import fused, replay, resident, vectorised
from algorithms.training.replay import Replays
from raysim.fleet import worker_plan
from tests.kit.recorded import Recorded
from tests.matrix.configurations import CONFIGURATIONS
from tests.matrix.executions import differing, run_as

BY_DEFAULT = ("fedprox tuned", "fixbn tuned", "momentum", "feedback and downlink")
"""Configurations of the default suite: trained vectorised, with frozen statistics, with slots, and fused."""

KERNEL_BY_KERNEL = frozenset(
    (
        *("apfl", "per-fedavg", "pfedme"),  # steps within a step
        *("feddyn", "feddyn at night", "scaffold", "scaffold compressed", "edges and scaffold"),  # several constants
        *("moon", "moon inactive", "oort and moon"),  # a loss term of their own
        *("heterofl", "levels by speed", "levels compressed"),  # layers of raysim that scale by a hook
        *("low-rank", "low-rank mlp"),  # products of narrow matrices instead of steps
        "own loss of batches",  # Python of the user's own
        "adam",  # counts its steps
    )
)
"""Configurations without a step that a graph takes. The tuned ones of these algorithms replay their fine-tuning."""


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in BY_DEFAULT else pytest.mark.slow) for name in CONFIGURATIONS]
)
def test_replayed_steps_leave_the_bytes_of_separate_kernels(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    config = CONFIGURATIONS[name]
    monkeypatch.setitem(CONFIGURATIONS, name, {**config, "fleet": {**config["fleet"], "block": 4}})
    for function, place in ((choose, 3), (lanes_of, 2)):
        monkeypatch.setattr(worker_plan, function.__name__, partial(_with_gpu, function, place))
    expected = run_as("inline", name, tmp_path / "separate")
    _as_on_a_gpu(monkeypatch)
    assert differing({"separate": expected, "replayed": run_as("inline", name, tmp_path / "replayed")}) == []
    assert bool(Recorded.taken) == (name not in KERNEL_BY_KERNEL)


def _with_gpu(function: Callable[..., Any], place: int, *given: Any) -> Any:
    """Call a function with the device "cuda", its argument at a place."""
    return function(*given[:place], "cuda", *given[place + 1 :])


def _as_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    made = resident.Resident.__init__

    def make(self: resident.Resident, *given: Any, **named: Any) -> None:
        made(self, *given, **named)
        self._host = {}  # numpy does not share a GPU's memory

    monkeypatch.setattr(resident.Resident, "__init__", make)
    monkeypatch.setattr(Recorded, "taken", 0)
    monkeypatch.setattr(replay, "Captured", Recorded)
    for name in ("LEAST_STEPS", "LEAST_DECAYING"):
        monkeypatch.setattr(replay, name, 1)
    for module in (fused, vectorised):
        monkeypatch.setattr(module, "launch_of", Replays)
