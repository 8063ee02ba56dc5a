"""GPUs: how many actors share one, in exact numbers, and the probe's work, on a CPU."""

from math import inf
from pathlib import Path

import numpy as np
import pytest
import torch

import partitioning
from algorithms import Local, Participation
from algorithms.names import ALGORITHMS
from raysim.common.errors import InputError
from raysim.data.sources import load
from raysim.fleet.gpu_sharing import (
    MAX_SHARERS,
    arranged,
    fraction,
    idle_notice,
    largest_block,
    measured,
    rehearse,
    shared_gpus,
    sharers,
)
from raysim.fleet.machine import fingerprint
from raysim.fleet.model_plan import ModelPlan
from raysim.fleet.resources import ActorDemand, ActorResources, capacity
from raysim.fleet.worker_plan import WorkerPlan
from tests.kit.federation import named

GB = 10**9


@pytest.mark.parametrize(
    ("peak", "total", "margin", "expected"),
    [
        (1 * GB, 8 * GB, 0.0, 8),
        (2 * GB, 8 * GB, 0.0, 4),
        (1 * GB, 8 * GB, 0.5, 4),
        (3 * GB, 8 * GB, 0.0, 2),
        (3 * GB, 8 * GB, 0.3, 1),
        (9 * GB, 8 * GB, 0.1, 1),
        (1, 80 * GB, 0.1, MAX_SHARERS),
    ],
)
def test_sharers_leave_the_margin(peak: int, total: int, margin: float, expected: int) -> None:
    assert sharers(peak, total, margin) == expected


def test_a_part_holds_the_peak_the_data_and_the_margin() -> None:
    for total in (8 * GB, 24 * GB, 80 * GB, 141 * GB):
        for peak in range(GB // 10, total, total // 50):
            k = sharers(peak, total)
            assert k == 1 or peak + 0.2 * total / k <= 0.9 * total / k + 1
            assert k == MAX_SHARERS or peak > 0.7 * total / (k + 1) - 1


@pytest.mark.parametrize(
    ("held", "gpus", "places", "actors", "expected"),
    [
        (4, 1, 16, None, (4, 4)),
        (4, 1, 2, None, (2, 2)),
        (4, 2, 16, None, (8, 4)),
        (4, 2, 5, None, (5, 3)),
        (16, 4, 4, None, (4, 1)),
        (16, 4, 0, None, (1, 1)),
        (4, 2, 16, 2, (2, 1)),
        (4, 2, 16, 3, (3, 2)),
        (4, 2, 1, 8, (8, 4)),
    ],
)
def test_actors_spread_over_the_gpus(
    held: int, gpus: int, places: int, actors: int | None, expected: tuple[int, int]
) -> None:
    assert arranged(held, gpus, places, actors) == expected


def test_more_actors_than_the_gpus_hold_are_refused() -> None:
    with pytest.raises(InputError, match=r"fleet.actors = 9: must be at most 8, .* set fleet.actors = 8"):
        arranged(4, 2, 16, 9)


@pytest.mark.parametrize(
    ("actors", "blocks", "expected"), [(None, 4, (3, 0.5)), (1, 4, (1, 1.0)), (3, 4, (3, 0.5)), (None, 1, (1, 1.0))]
)
def test_actors_share_gpus_as_far_as_cpus_and_blocks_go(
    actors: int | None, blocks: int, expected: tuple[int, float]
) -> None:
    """Two GPUs of 8 GB for three actors each, beside three CPUs."""
    node = {"NodeID": "a", "Resources": {"CPU": 3.0, "GPU": 2.0}, "Labels": {}}
    demand = ActorDemand(actors, ActorResources(gpus=1), by_memory=True)
    shared = shared_gpus(demand, 3 * GB // 2, 8 * GB, [node], blocks)
    assert (shared.number, shared.each.gpus) == expected


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a GPU")
def test_a_gpu_that_torch_does_not_see_is_refused() -> None:
    with pytest.raises(InputError, match=r"torch sees no GPU .*; set fleet.gpus_per_actor = 0"):
        fingerprint("cuda")


@pytest.mark.parametrize(
    ("each", "nodes", "expected"),
    [
        (0, [], inf),
        (1, [2, 1], 3),
        (2, [3, 3], 2),  # not 3: none spans two nodes
        (2, [1, 1], 0),
        (0.5, [1], 2),
        (0.6, [2], 2),  # not 3: none spans two devices
        (0.6, [1, 2, 0], 3),
        (0.3333, [1], 3),
        (1, [0.0], 0),
    ],
)
def test_what_nodes_hold(each: float, nodes: list[float], expected: float) -> None:
    assert capacity(each, nodes) == expected


@pytest.mark.parametrize("count", range(1, MAX_SHARERS + 1))
def test_as_many_fractions_fit_as_were_meant(count: int) -> None:
    assert capacity(fraction(count), [1]) == capacity(1 / count, [1]) == count
    assert round(10_000 * fraction(count)) * count <= 10_000


@pytest.fixture(scope="module")
def population(tmp_path_factory: pytest.TempPathFactory) -> Path:
    table = load("digits").train
    path = tmp_path_factory.mktemp("probe") / "population"
    given = {"scheme": "dirichlet-qp", "clients": 12, "label_alpha": 0.1, "seed": 3, "test_clients": 2}
    partitioning.make(table.slice(200), path, test=table.slice(0, 200), local_test=0.25, **given)
    return path


def plan_of(population: Path, name: str, block: int, cohort: int = 6, device: str = "cpu") -> WorkerPlan:
    model = ModelPlan("mlp", {"hidden": (16,), "norm": "batch"}, (1, 8, 8), 10, seed=1)
    algorithm = named(name, Participation(cohort=cohort), Local(lr=0.1))
    return WorkerPlan(population, model, algorithm, population.parent / "personal", block, device).resolved()


@pytest.mark.parametrize(
    ("block", "places", "told"),
    [
        (3, 2, ""),
        (3, 3, "blocks a round: 2, for 3 GPUs or actors, so some train nothing; set fleet.block = 2 "),
        (6, 6, "blocks a round: 1, for 6 GPUs or actors, so some train nothing; set fleet.block = 1 "),
        (1, 8, ""),  # six clients cannot make more blocks
    ],
)
def test_gpus_without_a_block_are_told(population: Path, block: int, places: int, told: str) -> None:
    plans = {"one": plan_of(population, "fedavg", 6), "other": plan_of(population, "fedavg", block)}
    notice = idle_notice(places, plans)
    assert notice.startswith(told) and bool(notice) == bool(told)


REHEARSED = ("centralized", "ditto", "dpsgd", "fedasync", "fedbn", "fedtan", "fjord", "hierfavg", "ifca", "radfedi")
"""Algorithms of the default suite: each kind of round and of state."""


@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.slow] * (n not in REHEARSED)) for n in ALGORITHMS])
def test_a_rehearsal_leaves_nothing(population: Path, name: str, tmp_path: Path) -> None:
    before = sorted(population.parent.rglob("*"))
    rehearse(plan_of(population, name, block=3))
    assert sorted(population.parent.rglob("*")) == before


@pytest.mark.parametrize(("block", "cohort", "clients"), [(1, 6, 1), (4, 6, 4), (6, 6, 6), (50, 6, 6)])
def test_the_largest_block_has_the_largest_clients(population: Path, block: int, cohort: int, clients: int) -> None:
    plan = plan_of(population, "fedavg", block, cohort)
    largest, samples = largest_block(plan), plan.census.samples
    assert list(largest.clients) == sorted(largest.clients) and len(largest.clients) == clients
    assert largest.size == np.sort(samples)[-clients:].sum() == plan.census.of(np.array(largest.clients)).sum()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_more_clients_a_block_take_more_of_a_gpu(population: Path) -> None:
    one, total = measured(plan_of(population, "fedavg", 1, device="cuda"))
    six, _ = measured(plan_of(population, "fedavg", 6, device="cuda"))
    assert 0 < one <= six < total
