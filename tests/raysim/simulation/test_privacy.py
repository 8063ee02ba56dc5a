"""Runs with differential privacy: epsilon by round, the noise for a given epsilon, and what is refused."""

import json
from pathlib import Path
from typing import Any

import pytest

from raysim.common.errors import InputError
from raysim.config.experiment import Experiment
from raysim.config.read import read
from raysim.measures.epsilon.accounting import Accountant
from tests.kit.runs import SMALL, metrics, quick_run

KEYS = {"sampling": "poisson", "fraction": 0.5, "weighting": "equal"}
PRIVATE: dict[str, Any] = {
    **SMALL,
    "model": {"name": "logistic"},
    "evaluate": {"every": 1},
    "privacy": {"noise": 1.5, "clip": 0.5, "delta": 1e-3, "accountant": "rdp"},
    "algorithm": [
        {"name": "fedavg", **KEYS},
        {"name": "fedadam", **KEYS, "privacy": {"epsilon": 6.0, "adaptive": {"count_noise": 3.0}}},
    ],
}


@pytest.fixture(scope="module")
def inline(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("privacy") / "inline"
    quick_run(PRIVATE, folder, inline=True)
    return folder


def test_epsilon_of_each_round_is_that_of_the_rounds_that_ran(inline: Path) -> None:
    found = metrics(inline / "fedavg")["epsilon"]
    accountant = Accountant(1e-3, "rdp")
    assert found == [accountant.epsilon([(0.5, 1.5, number)]) for number in range(1, len(found) + 1)]
    assert json.loads((inline / "fedavg" / "summary.json").read_text())["epsilon"] == found[-1]


def test_the_noise_is_solved_for_and_written(inline: Path) -> None:
    config = Experiment.of(read(inline / "config.toml"))
    privacy = config.table("fedadam").privacy
    assert privacy is not None and privacy.epsilon is None and privacy.noise is not None
    last = metrics(inline / "fedadam")["epsilon"][-1]
    assert 0.99 * 6 < last <= 6


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"privacy": {"clip": 0.5}}, r"privacy.noise, privacy.epsilon = \(None, None\): must be one of them"),
        ({"privacy": {"clip": 0.5, "noise": 0.01, "delta": 1e-3}}, "must be 0 or at least 0.1"),
        ({"privacy": {"clip": 0.5, "noise": 1.0, "epsilon": 8.0}}, "must be one of them"),
        ({"privacy": {"clip": 0.5, "nois": 1.0}}, "did you mean 'privacy.noise'"),
        ({"privacy": {"clip": -1.0, "noise": 1.0}}, "privacy.clip = -1.0: must be a finite number > 0"),
        ({"algorithm": {"name": "fedavg", **KEYS, "joins": {"1": 2}}}, r"algorithm.joins with \[privacy\]"),
        ({"algorithm": {"name": "fedavg"}}, 'must be "poisson"'),
        ({"algorithm": {"name": "scaffold"}}, "sampling"),
    ],
)
def test_mistakes_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Experiment.of({**PRIVATE, "algorithm": PRIVATE["algorithm"][0], **changes})
