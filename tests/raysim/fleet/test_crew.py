"""The actors of a fleet while they start, on a Ray that is only played."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import ray
from ray.exceptions import ObjectLostError, RayTaskError

from raysim.fleet import pool as pools
from raysim.fleet.crew import Crew
from raysim.fleet.pool import ActorPool
from raysim.fleet.resources import ActorDemand, ActorResources

POPULATION, OTHER = Path("population"), Path("other")

PLAN: Any = SimpleNamespace(
    population=POPULATION, personal="personal", layouts=SimpleNamespace(personal=SimpleNamespace(entries=(1,)))
)
"""Plan with personal state."""


class Handle:
    """Handle of an actor that notes its stores."""

    def __init__(self, stores: list[Any]) -> None:
        self.prepare = self
        self._stores = stores

    def remote(self, plan: Any, store: Any) -> object:
        self._stores.append(store)
        return object()


@pytest.fixture
def stores() -> list[Any]:
    return []


@pytest.fixture
def pool(stores: list[Any], monkeypatch: pytest.MonkeyPatch) -> ActorPool:
    """One actor on a cluster, whose nodes do not see the driver's files."""
    monkeypatch.setattr(pools, "check_answers", lambda address: None)
    monkeypatch.setattr("raysim.fleet.crew.store_of", lambda plan: object())
    monkeypatch.setattr(ray, "kill", lambda handle: None)
    pool = ActorPool(ActorDemand(1, ActorResources()), "127.0.0.1:1")
    monkeypatch.setattr(pool._ray, "wait", lambda seconds: None)
    monkeypatch.setattr(pool, "_actor", lambda number, each: Handle(stores))
    pool.sites, pool._handles = [None], [Handle(stores)]
    return pool


def test_each_fleet_has_its_own_store_of_personal_state(
    pool: ActorPool, stores: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as a resume with the same actors, or an algorithm that begins again after damage."""
    monkeypatch.setattr(ray, "wait", lambda references, **_: ([], references))
    for _ in range(2):
        Crew(pool, PLAN, print).gather()
    assert len(stores) == 2 and None not in stores and stores[0] is not stores[1]


def test_an_actor_whose_copy_of_the_population_is_lost_is_started_again(
    pool: ActorPool, stores: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def get(*_: object, **__: object) -> None:
        raise RayTaskError("prepare", "Traceback", ObjectLostError("00" * 28, "", ""))

    told: list[str] = []
    monkeypatch.setattr(ray, "get", get)
    monkeypatch.setattr(ray, "wait", lambda references, **_: (references[:1], references[1:]))
    crew = Crew(pool, PLAN, told.append)
    crew.gather()
    (text,) = told
    assert text.startswith("client actor 0 did not start (its copy of the population was lost on the way); raysim")
    assert len(list(crew.awaited)) == 1 and stores[0] is stores[1]


def test_the_sender_of_a_population_ends_once_all_actors_are_ready(
    pool: ActorPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray, "get", lambda reference, **_: ({"cpu": "AVX2"}, "node"))
    monkeypatch.setattr(ray, "wait", lambda references, **_: (references[:1], references[1:]))
    files = pool._files
    files._senders |= {POPULATION: object(), OTHER: object()}
    files._copies |= {("node", POPULATION): object(), ("node", OTHER): object()}
    crew = Crew(pool, PLAN, print)
    crew.gather()
    assert list(crew.ready) == [0]
    assert list(files._senders) == [OTHER] and list(files._copies) == [("node", OTHER)]


def test_an_actor_that_differs_is_refused_and_not_those_after_it(pool: ActorPool) -> None:
    """Such as its replacement, in a later run on the same actors."""
    pool.admit({"cpu": "AVX2"})
    with pytest.raises(RuntimeError, match="client actors differ"):
        pool.admit({"cpu": "AVX512"})
    pool.admit({"cpu": "AVX2"})
    assert pool.fingerprint == {"cpu": "AVX2"}


def test_actors_end_with_their_context_and_an_error_in_it(pool: ActorPool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user's own Ray goes on after the run."""
    ended: list[Any] = []
    monkeypatch.setattr(ray, "kill", ended.append)
    monkeypatch.setattr(pool, "_create", lambda: None)
    with pytest.raises(ZeroDivisionError), pool._serving():
        raise ZeroDivisionError
    assert ended == pool._handles and ended


@pytest.mark.parametrize(("nodes", "is_here"), [(1, True), (2, False)])
def test_a_ray_of_several_nodes_that_ran_before_is_a_cluster(
    nodes: int, is_here: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(ray, "is_initialized", lambda: True)
    monkeypatch.setattr(pools, "living_nodes", lambda: [{}] * nodes)
    pool = ActorPool(ActorDemand(1, ActorResources()), None)
    assert pool.driver_may_help is is_here
