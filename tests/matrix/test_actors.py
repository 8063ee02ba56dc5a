"""The matrix on one and on two actors: a part by default, the rest marked slow, for it takes minutes together."""

from pathlib import Path

import pytest

import raysim
from tests.kit.ray import SharedRay
from tests.matrix.configurations import CONFIGURATIONS, ON_ACTORS
from tests.matrix.executions import differing, run_as

OTHERS = [name for name in CONFIGURATIONS if name not in ON_ACTORS]


@pytest.fixture
def actors(shared_ray: SharedRay) -> dict[str, raysim.Actors]:
    return {"one actor": shared_ray.actors(1), "two actors": shared_ray.actors(2)}


@pytest.mark.parametrize("name", [*ON_ACTORS, *[pytest.param(name, marks=pytest.mark.slow) for name in OTHERS]])
def test_actors_give_the_bytes_of_one_process(name: str, actors: dict[str, raysim.Actors], tmp_path: Path) -> None:
    found = {way: run_as(way, name, tmp_path / way, actors.get(way)) for way in ("inline", *actors)}
    assert differing(found) == []
