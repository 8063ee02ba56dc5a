"""A study that is small enough for tests."""

from copy import deepcopy
from typing import Any

import pytest

SMALL: dict[str, Any] = {
    "seed": 3,
    "rounds": 2,
    "data": {"dataset": "digits"},
    "partition": {"scheme": "iid", "clients": 6},
    "model": {"name": "mlp", "hidden": [4]},
    "local": {"batch_size": 50, "lr": 0.1},
    "algorithm": [{"name": "fedavg"}, {"name": "radfed", "aggregate_every": 2}],
    "evaluate": {"metrics": ["accuracy", "loss"]},
    "study": {
        "seeds": [1, 2],
        "folds": 3,
        "tune": {"seeds": [1], "folds": [0, 1]},
        "grid": {"*": {"local.lr": [0.1, 0.3]}},
    },
}


@pytest.fixture
def small() -> dict[str, Any]:
    """Two algorithms at two points on three folds with two seeds."""
    return deepcopy(SMALL)
