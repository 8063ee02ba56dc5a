"""A study that is small enough for tests."""

from copy import deepcopy
from typing import Any

import pytest

from tests.kit.studies import SMALL


@pytest.fixture
def small() -> dict[str, Any]:
    """Two algorithms at two points on three folds with two seeds."""
    return deepcopy(SMALL)
