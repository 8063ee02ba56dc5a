"""The matrix on one and on two actors: a part by default, the rest marked slow, for it takes minutes together."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import raysim
from tests.matrix.configurations import CONFIGURATIONS, ON_ACTORS
from tests.matrix.executions import differing, fleets, run_as

OTHERS = [name for name in CONFIGURATIONS if name not in ON_ACTORS]


@pytest.fixture(scope="module")
def actors() -> Iterator[dict[str, raysim.Actors]]:
    with fleets() as started:
        yield started


@pytest.mark.parametrize("name", [*ON_ACTORS, *[pytest.param(name, marks=pytest.mark.slow) for name in OTHERS]])
def test_actors_give_the_bytes_of_one_process(name: str, actors: dict[str, raysim.Actors], tmp_path: Path) -> None:
    found = {way: run_as(way, name, tmp_path / way, actors.get(way)) for way in ("inline", *actors)}
    assert differing(found) == []
