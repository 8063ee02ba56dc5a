"""Runs with an uplink or a downlink: equal bytes on every fleet, and after a stop."""

from pathlib import Path
from typing import Any

import pytest

import raysim
from tests.raysim.simulation.test_api import metrics
from tests.raysim.store.test_resume import BASE, Breaks, Pair, assert_same

QUANTISE = {"name": "quantise", "levels": 16}

COMPRESSED: dict[str, Any] = {
    **BASE,
    "uplink": {"chain": [{"name": "top-k", "share": 0.05}, {"name": "quantise", "levels": 64}], "feedback": True},
    "algorithm": [
        {"name": "fedavg", "cohort": 3},
        {"name": "radfed", "cohort": 3, "aggregate_every": 2, "uplink": {"chain": [{"name": "quantise", "levels": 8}]}},
        {"name": "fedbn", "cohort": 3, "uplink": {"chain": [{"name": "random-k", "share": 0.1}, {"name": "sign"}]}},
        {"name": "fedadam", "cohort": 3, "downlink": {"chain": [{"name": "top-k", "share": 0.1}, QUANTISE]}},
        {"name": "fedasync", "cohort": 2, "uplink": {"chain": [{"name": "noise", "std": 0.01}]}},
    ],
}
NAMES = [each["name"] for each in COMPRESSED["algorithm"]]


@pytest.fixture(scope="module")
def inline(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("uplink") / "inline"
    raysim.run(COMPRESSED, folder, inline=True)
    return folder


@pytest.mark.parametrize("actors", [1, 2])
def test_every_fleet_gives_the_same_bytes(inline: Path, actors: int, tmp_path: Path) -> None:
    raysim.run(COMPRESSED, tmp_path / "run", actors=actors)
    for name in NAMES:
        one, other = inline / name, tmp_path / "run" / name
        assert metrics(one) == metrics(other)
        for file in ("model.safetensors", "personal.safetensors"):
            assert (one / file).exists() == (other / file).exists()
            assert not (one / file).exists() or (one / file).read_bytes() == (other / file).read_bytes()
    assert (inline / "fedavg" / "personal.safetensors").exists()  # the residuals


def test_a_stopped_run_ends_as_if_it_had_not_been_stopped(tmp_path: Path) -> None:
    pair = Pair(tmp_path, COMPRESSED, Breaks(3, lambda name: name in ("fedavg", "fedbn")))
    for name in NAMES:
        assert_same(pair.one, pair.other, name)
    assert set(NAMES) <= pair.watcher.seen


def test_messages_are_shorter_than_models(inline: Path) -> None:
    for name in ("fedavg", "radfed", "fedbn"):
        found = metrics(inline / name)
        assert 0 < sum(found["bytes_up"]) < 0.6 * sum(found["bytes_down"])
    compressed, whole = (sum(metrics(inline / name)["bytes_down"]) for name in ("fedadam", "fedavg"))
    assert 0 < compressed < 0.8 * whole
