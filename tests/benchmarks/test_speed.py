"""The benchmark itself works: every way of a round runs on a small load."""

from pathlib import Path

import pytest

from raysim.fleet.client_actors import ClientActors
from tests.benchmarks import rounds
from tests.benchmarks.peers.loads import LOADS, Load


@pytest.mark.benchmark
def test_all_ways_of_a_round_are_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(LOADS, "A", Load("mlp", (1, 28, 28), clients=6, samples=20, cohort=4))
    with ClientActors(2) as actors:
        found = rounds.measure("A", actors, None, repeats=1, rounds=2, folder=tmp_path)
    assert list(found) == ["plain loop", "two plain loops", "raysim, 2 actors"]
    assert all(seconds > 0 for seconds in found.values())
