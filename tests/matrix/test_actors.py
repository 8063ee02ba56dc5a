"""The matrix on one and on two actors: a part by default, the rest marked slow, for it takes minutes together."""

from pathlib import Path

import pytest

from tests.kit.ray import SharedRay
from tests.matrix.configurations import CONFIGURATIONS, ON_ONE_ACTOR, ON_TWO_ACTORS
from tests.matrix.executions import differing, run_as

BY_DEFAULT = {name: (1, 2) if name in ON_ONE_ACTOR else (2,) for name in ON_TWO_ACTORS}
OTHERS = {name: [number for number in (1, 2) if number not in BY_DEFAULT.get(name, ())] for name in CONFIGURATIONS}


@pytest.mark.parametrize(
    ("name", "numbers"),
    [*BY_DEFAULT.items(), *[pytest.param(*each, marks=pytest.mark.slow) for each in OTHERS.items() if each[1]]],
)
def test_actors_give_the_bytes_of_one_process(
    name: str, numbers: list[int], shared_ray: SharedRay, tmp_path: Path
) -> None:
    found = {"inline": run_as("inline", name, tmp_path / "inline")}
    for number in numbers:
        found[f"{number} actors"] = run_as("actors", name, tmp_path / f"{number}", shared_ray.actors(number))
    assert differing(found) == []
