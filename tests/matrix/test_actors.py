"""The matrix on actors: by default a part on two, and of that a part on one; the rest is slow, for it takes minutes."""

from pathlib import Path

import pytest

from tests.kit.ray import SharedRay
from tests.matrix.configurations import CONFIGURATIONS, ON_TWO_ACTORS
from tests.matrix.executions import differing, run_as

ON_ONE = ("hierfavg tuned", "dpsgd tuned", "fedasync of vanishing clients")
"""Rounds of their own, which no other test runs on one actor."""

BY_DEFAULT = {name: (1, 2) if name in ON_ONE else (2,) for name in ON_TWO_ACTORS}
OTHERS = {name: (1,) if name in BY_DEFAULT else (1, 2) for name in CONFIGURATIONS if name not in ON_ONE}


@pytest.mark.parametrize(
    ("name", "numbers"),
    [*BY_DEFAULT.items(), *[pytest.param(*each, marks=pytest.mark.slow) for each in OTHERS.items()]],
)
def test_actors_give_the_bytes_of_one_process(
    name: str, numbers: tuple[int, ...], shared_ray: SharedRay, tmp_path: Path
) -> None:
    found = {"inline": run_as("inline", name, tmp_path / "inline")}
    for number in numbers:
        found[f"{number} actors"] = run_as("actors", name, tmp_path / f"{number}", shared_ray.actors(number))
    assert differing(found) == []
