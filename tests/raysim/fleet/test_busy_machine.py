"""A machine on which Ray does not start, or starts late: the driver stands in for the actors."""

from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from ray._private import ray_constants

from algorithms import Algorithm, Block, Fleet, Local, Participation, fedavg, fedbn, radfed
from partitioning import Population
from raysim.common.errors import RayStartError
from raysim.fleet.calls import ActorTimeouts
from raysim.fleet.client_actors import ClientActors
from tests.kit.struck import Poison, plan_of, population_at, trained, trained_here

# A start of Ray that failed leaves ended processes behind, whose objects warn.
pytestmark = [
    pytest.mark.usefixtures("own_ray"),
    pytest.mark.filterwarnings("ignore:subprocess"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

LOCAL = Local(lr=0.1, batch_size=32)

CONNECT_RETRIES = "NUM_REDIS_GET_RETRIES"
"""Ray's limit for the start of its control store, in seconds; 0 fails like a machine that is too busy."""


@pytest.fixture(scope="module")
def population(tmp_path_factory: pytest.TempPathFactory) -> Population:
    return population_at(tmp_path_factory.mktemp("busy") / "population")


@pytest.mark.parametrize(
    "algorithm",
    [
        fedavg(Participation(cohort=4), LOCAL),
        fedbn(Participation(cohort=4), LOCAL),
        radfed(Participation(cohort=4), LOCAL, aggregate_every=3),
    ],
    ids=lambda algorithm: type(algorithm.sharing).__name__,
)
def test_the_driver_stands_in_for_a_ray_that_does_not_start(
    algorithm: Algorithm, population: Population, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = plan_of(population, algorithm, tmp_path / "personal")
    expected = trained_here(plan, population)
    plan = replace(plan, personal=tmp_path / "again")
    monkeypatch.setattr(ray_constants, CONNECT_RETRIES, 0)
    told: list[str] = []
    with ClientActors(2) as actors, closing(actors.fleet(plan, tell=told.append)) as fleet:
        _wait_for_notice(fleet, told)
        assert trained(fleet, plan, population) == expected
    assert not actors.pool.arrived
    assert len(told) == 1 and told[0].startswith("Ray did not start (")


@pytest.mark.slow
def test_actors_that_come_late_take_over(
    population: Population, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = plan_of(population, radfed(Participation(cohort=4), LOCAL, aggregate_every=3), tmp_path / "personal")
    expected = trained_here(plan, population)
    told: list[str] = []
    with (
        monkeypatch.context() as busy,
        ClientActors(2, timeouts=ActorTimeouts(pause=0.1)) as actors,
        closing(actors.fleet(plan, tell=told.append)) as fleet,
    ):
        busy.setattr(ray_constants, CONNECT_RETRIES, 0)
        _wait_for_notice(fleet, told)
        assert trained(fleet, plan, population) == expected
        busy.undo()
        while not actors.pool.arrived:
            list(fleet.map(Poison(-1), [Block(0, (0,), 1)]))
        assert trained(fleet, plan, population) == expected
    assert len(told) == 1


def test_a_run_that_needs_ray_ends_with_a_line(
    population: Population, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = plan_of(population, fedavg(Participation(cohort=4), LOCAL), tmp_path / "personal")
    monkeypatch.setattr(ray_constants, CONNECT_RETRIES, 0)
    with (
        ClientActors(2, gpus_per_actor=0.5, timeouts=ActorTimeouts(starts=2, pause=0.1)) as actors,
        closing(actors.fleet(plan)) as fleet,
        pytest.raises(RayStartError, match=r"Ray did not start \(.*\); repeat it when the machine is less busy"),
    ):
        trained(fleet, plan, population)


def _wait_for_notice(fleet: Fleet, told: list[str]) -> None:
    while not told:
        list(fleet.map(Poison(-1), [Block(0, (0,), 1)]))
