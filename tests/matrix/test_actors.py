"""The matrix on actors: a part of it on two by default; the rest is marked slow, for it takes minutes together."""

from pathlib import Path

import pytest

from tests.kit.ray import SharedRay
from tests.matrix.configurations import CONFIGURATIONS, ON_TWO_ACTORS
from tests.matrix.executions import differing, run_as

BY_DEFAULT = dict.fromkeys(ON_TWO_ACTORS, (2,))
OTHERS = {name: (1,) if name in BY_DEFAULT else (1, 2) for name in CONFIGURATIONS}


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
