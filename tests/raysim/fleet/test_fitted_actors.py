"""`gpus_per_actor = "auto"` as far as it goes without a GPU: Ray counts two that are not there."""

from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from unittest import TestCase

import pytest
import ray
import torch

import partitioning
from algorithms import Local, Participation, begin, fedavg, next_round
from raysim.common.errors import InputError
from raysim.data.sources import load
from raysim.fleet.client_actors import ClientActors
from raysim.fleet.inline import InlineWorkplace
from raysim.fleet.model_plan import ModelPlan
from raysim.fleet.pool import ActorPool
from raysim.fleet.ray_runtime import lean
from raysim.fleet.resources import ActorDemand, ActorResources
from raysim.fleet.worker_plan import WorkerPlan
from tests.kit.ray import slight

pytestmark = pytest.mark.usefixtures("own_ray")

GB = 10**9


class MeasuredPool(ActorPool):
    """Actors on CPUs, and GPUs of 8 GB of which an actor is said to take 1.5 GB: three share one."""

    def __init__(self) -> None:
        super().__init__(ActorDemand(None, ActorResources(gpus=1), by_memory=True), None)
        self.device, self.driver_may_help = "cpu", True

    def _measured(self, plans: Mapping[str, WorkerPlan]) -> tuple[int, int]:
        return 3 * GB // 2, 8 * GB


class Measured(ClientActors):
    """A place with such actors."""

    def __init__(self) -> None:
        super().__init__(None, pool=MeasuredPool())

    def __exit__(self, *_: object) -> None:
        self.pool.end()


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> WorkerPlan:
    path = tmp_path_factory.mktemp("fitted") / "population"
    partitioning.make(load("digits").train, path, scheme="iid", clients=8)
    model = ModelPlan("mlp", {"hidden": (16,)}, (1, 8, 8), 10, seed=1)
    return WorkerPlan(path, model, fedavg(Participation(), Local(lr=0.1)), path.parent / "personal", block=2).resolved()


@pytest.fixture(scope="module")
def two_gpus() -> Iterator[None]:
    quiet = {"include_dashboard": False, "log_to_driver": False, "logging_level": "ERROR"}
    with lean(), slight():
        ray.init(address="local", num_cpus=3, num_gpus=2, **quiet)  # type: ignore[arg-type]
    yield
    ray.shutdown()


def two_rounds(place: InlineWorkplace | Measured, plan: WorkerPlan) -> bytes:
    with closing(place.fleet(plan)) as fleet:
        state = begin(plan.module(), fleet, 0)
        for _ in range(2):
            state = next_round(state, plan.algorithm, fleet)
        return state.model.floats.tobytes()


def test_actors_start_when_their_part_is_known(two_gpus: None, plan: WorkerPlan) -> None:
    with TestCase().assertLogs("raysim", "INFO") as logs, Measured() as place:
        place.fit({"fedavg": plan, "whole": replace(plan, block=8)}, 1)
        assert (place.workers, place.pool.demand.each.gpus, len(place.pool.handles())) == (3, 0.5, 3)
        found = two_rounds(place, plan)
    with InlineWorkplace() as here:
        assert two_rounds(here, plan) == found
    assert "a GPU holds 3 actors; 3 of 0.5 GPU each" in str(logs.output)


def test_a_gpu_without_a_block_is_told_once(two_gpus: None, plan: WorkerPlan) -> None:
    told: list[str] = []
    with Measured() as place:
        place.device = "cuda"
        place.fit({"whole": replace(plan, block=8)}, 1)
        for _ in range(2):
            place.fleet(plan, tell=told.append).close()
    assert told == [
        "blocks a round: 1, for 2 GPUs or actors, so some train nothing; set fleet.block = 4 (a new run, whose last "
        "digits differ)"
    ]


def test_an_actor_of_several_gpus_leaves_none_without_a_block(two_gpus: None, plan: WorkerPlan) -> None:
    told: list[str] = []
    with ClientActors(None, 1, 2) as place:
        place.fit({"whole": replace(plan, block=8)}, 1)
        place.fleet(plan, tell=told.append).close()
    assert (place.device, told) == ("cuda", [])


def test_fractions_that_would_wait_in_silence_are_refused(two_gpus: None) -> None:
    message = (
        r"fleet.actors = 3 of 1 CPU and 0.6 GPU each: must fit Ray's nodes, which hold 2 and are 1 x \(3 CPU, 2 GPU\); "
        "set fleet.actors = 2"
    )
    with pytest.raises(InputError, match=message), ClientActors(3, 1, 0.6) as place:
        place.pool.handles()


@pytest.mark.slow
@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a GPU")
def test_a_gpu_that_torch_does_not_see_is_refused_by_the_probe(two_gpus: None, plan: WorkerPlan) -> None:
    with (
        pytest.raises(InputError, match=r"torch sees no GPU .*; set fleet.gpus_per_actor = 0"),
        ClientActors(None, gpus_per_actor="auto") as place,
    ):
        place.fit({"fedavg": plan}, 1)
