"""Runs with an uplink or a downlink: the length of their messages, and what clients keep."""

from pathlib import Path
from typing import Any

import pytest

from tests.kit.runs import SMALL, metrics, quick_run

QUANTISE = {"name": "quantise", "levels": 16}

COMPRESSED: dict[str, Any] = {
    **SMALL,
    "uplink": {"chain": [{"name": "top-k", "share": 0.05}, {"name": "quantise", "levels": 64}], "feedback": True},
    "algorithm": [
        {"name": "fedavg", "cohort": 3},
        {"name": "radfed", "cohort": 3, "aggregate_every": 2, "uplink": {"chain": [{"name": "quantise", "levels": 8}]}},
        {"name": "fedbn", "cohort": 3, "uplink": {"chain": [{"name": "random-k", "share": 0.1}, {"name": "sign"}]}},
        {"name": "fedadam", "cohort": 3, "downlink": {"chain": [{"name": "top-k", "share": 0.1}, QUANTISE]}},
    ],
}


@pytest.fixture(scope="module")
def inline(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("uplink") / "inline"
    quick_run(COMPRESSED, folder, inline=True)
    return folder


def test_messages_are_shorter_than_models(inline: Path) -> None:
    for name in ("fedavg", "radfed", "fedbn"):
        found = metrics(inline / name)
        assert 0 < sum(found["bytes_up"]) < 0.6 * sum(found["bytes_down"])
    compressed, whole = (sum(metrics(inline / name)["bytes_down"]) for name in ("fedadam", "fedavg"))
    assert 0 < compressed < 0.8 * whole


def test_residuals_are_kept_with_personal_state(inline: Path) -> None:
    assert (inline / "fedavg" / "personal.safetensors").exists()
