"""The plan of a bench: all that another process needs to set one up."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from algorithms import Bench, Census, KeptStore, Layout, Place, Placement, Resident
from partitioning import Population
from raysim.data.shards import Shards
from raysim.models import build


@dataclass(frozen=True)
class ModelPlan:
    """A model by name: the same arguments and the same seed make the same bytes.

    Args:
        name: one of `raysim list models`.
        parameters: what the named model takes.
        shape: of one sample.
        classes: number of classes.
        seed: keys the initial entries.
    """

    name: str
    parameters: dict[str, object]
    shape: tuple[int, ...]
    classes: int
    seed: int

    def build(self) -> nn.Module:
        """Make the module."""
        return build(self.name, shape=self.shape, classes=self.classes, seed=self.seed, **self.parameters)


@dataclass(frozen=True)
class BenchPlan:
    """What to set up where blocks run.

    Args:
        population: folder of shards whose images are decoded.
        model: the model to keep resident.
        place: which of its entries travel.
        kept: folder of the kept entries.
        block: clients a block, or "auto".
    """

    population: Path
    model: ModelPlan
    place: Place
    kept: Path
    block: int | str = "auto"

    def build(self, device: str = "cpu") -> Bench:
        """Set up a bench in this process."""
        placement = self.placement()
        resident = Resident(self.model.build(), placement, torch.zeros(self.model.shape), device)
        return Bench(resident, Shards(self.population, device), KeptStore(self.kept, placement.kept))

    def placement(self) -> Placement:
        """How the model's entries are divided.

        Raises:
            InputError: the placement makes no sense for the model.
        """
        return self.place.divide(Layout.of(self.model.build()))

    def census(self) -> Census:
        """The population's training clients."""
        population = Population.open(self.population)
        samples = population.sizes - population.test_sizes
        return Census(population.train_clients, samples[population.train_clients])

    def block_size(self, cohort: int) -> int:
        """Clients a block; "auto" is ceil(sqrt(cohort / 10)): one call's work grows, and so does their number."""
        if isinstance(self.block, int):
            return self.block
        size = 1
        while 10 * size * size < cohort:
            size += 1
        return size
