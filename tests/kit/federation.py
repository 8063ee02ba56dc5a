"""A small federation in memory: clients of different sizes, on the real inline fleet."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from algorithms import (
    Algorithm,
    Augment,
    Census,
    Compute,
    Layout,
    Local,
    Participation,
    PersonalStore,
    Resident,
    Sharing,
    Worker,
    low_rank_trainer,
    trainer,
)
from algorithms.names import ALGORITHMS
from raysim.fleet.inline import InlineFleet
from raysim.fleet.machine import settled

Samples = tuple[torch.Tensor, torch.Tensor]

NEEDS_BATCH_NORM = frozenset({"fedbn", "silobn", "fixbn", "static-bn", "fedtan"})
"""Algorithms that refuse a model without batch norm."""


@dataclass
class Memory:
    """Clients' samples in memory."""

    clients: Sequence[Samples]

    def samples(self, client: int, part: str) -> Samples:
        return self.clients[client]

    def union(self, clients: Sequence[int], part: str) -> Samples:
        x, y = (torch.cat(each) for each in zip(*(self.clients[client] for client in clients), strict=True))
        return x, y

    def test_slice(self, number: int, domain: str | None = None) -> Samples:
        raise IndexError(number)


def perceptron(norm: bool = False, seed: int = 0, bias: bool = True) -> nn.Sequential:
    """A 4-6-3 perceptron, with or without batch norm and a bias of its first layer."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        middle = [nn.BatchNorm1d(6)] if norm else []
        return nn.Sequential(nn.Linear(4, 6, bias=bias), *middle, nn.ReLU(), nn.Linear(6, 3))


def named(name: str, participation: Participation, local: Local) -> Algorithm:
    """An algorithm by its name, on a cohort of that size where it leaves the choice."""
    return ALGORITHMS[name](Participation() if name == "centralized" else participation, local)


def clients(sizes: Sequence[int], seed: int = 0) -> list[Samples]:
    """Clients of given sizes, each with a distribution of its own."""
    rng = np.random.default_rng(seed)
    made = []
    for i, size in enumerate(sizes):
        x = torch.from_numpy(rng.normal(i, 1 + i, (size, 4)).astype(np.float32))
        made.append((x, torch.from_numpy(rng.integers(0, 3, size))))
    return made


@pytest.fixture(autouse=True)
def settle() -> Iterator[None]:
    """Compute as client updates do: on one thread, deterministically."""
    with settled(1):
        yield


@pytest.fixture
def federation(tmp_path: Path) -> Iterator[Callable[..., InlineFleet]]:
    """Makes an inline fleet over clients in memory."""
    made: list[InlineFleet] = []

    def make(
        data: Sequence[Samples],
        module: nn.Module,
        sharing: Sharing | None = None,
        block: int = 2,
        compute: Compute = Compute("sequential"),
        lanes: int = 2,
        augment: Augment | None = None,
    ) -> InlineFleet:
        layouts = (sharing or Sharing()).divide(Layout.of(module))
        resident = Resident(module, layouts, torch.zeros(4), lanes=1 if compute.execution == "sequential" else lanes)
        census = Census(np.arange(len(data)), np.array([len(y) for _, y in data]))
        personal = PersonalStore(tmp_path / f"personal-{len(made)}", layouts.personal)
        low_rank = low_rank_trainer(resident, compute)
        worker = Worker(resident, Memory(data), personal, trainer(resident, compute), low_rank, augment)
        made.append(InlineFleet(worker, census, lambda cohort: block))
        return made[-1]

    yield make
    for fleet in made:
        fleet.close()
