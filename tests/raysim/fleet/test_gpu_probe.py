"""The probe's work, on a CPU: which block it takes, and that nothing of it is kept."""

from pathlib import Path

import numpy as np
import pytest
import torch

import partitioning
from algorithms import Local, Sample
from algorithms.names import ALGORITHMS
from raysim.data.sources import load
from raysim.fleet.gpu_probe import largest_block, measured, rehearse
from raysim.fleet.worker_plan import ModelPlan, WorkerPlan
from tests.algorithms.conftest import named


@pytest.fixture(scope="module")
def population(tmp_path_factory: pytest.TempPathFactory) -> Path:
    table = load("digits").train
    path = tmp_path_factory.mktemp("probe") / "population"
    given = {"scheme": "dirichlet-qp", "clients": 12, "label_alpha": 0.1, "seed": 3, "test_clients": 2}
    partitioning.make(table.slice(200), path, test=table.slice(0, 200), local_test=0.25, **given)
    return path


def plan_of(population: Path, name: str, block: int, cohort: int = 6, device: str = "cpu") -> WorkerPlan:
    model = ModelPlan("mlp", {"hidden": (16,), "norm": "batch"}, (1, 8, 8), 10, seed=1)
    algorithm = named(name, Sample(cohort=cohort), Local(lr=0.1))
    return WorkerPlan(population, model, algorithm, population.parent / "personal", block, device).resolved()


@pytest.mark.parametrize("name", ALGORITHMS)
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
