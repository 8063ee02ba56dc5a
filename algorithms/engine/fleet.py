"""What runs blocks of work, seen from an algorithm: the `Fleet` protocol and what travels through it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from algorithms.engine.personal import PersonalStore
from algorithms.engine.resident import Resident
from algorithms.engine.tree import Node
from algorithms.parts.sharing import Layouts
from algorithms.training.augment import Augment
from algorithms.training.steps import Trainer

SEVERAL = -1
"""In the place of a site's number: clients of more than one."""

Reference = Any
"""A value that a fleet holds: opaque, and resolved only where a block runs."""


@dataclass(frozen=True)
class Census:
    """The training clients and how many samples each trains on.

    Args:
        clients: their ids, ascending, int64 [K].
        samples: their numbers of training samples, int64 [K].
        joins: the first round in which each may be drawn, int64 [K]; None where all are there from the first.
        sites: the number of the site that each is of, int64 [K]; None where the population has no sites.
    """

    clients: NDArray[np.int64]
    samples: NDArray[np.int64]
    joins: NDArray[np.int64] | None = None
    sites: NDArray[np.int64] | None = None

    def there(self, number: int) -> NDArray[np.int64]:
        """The clients that have joined by a round, ascending."""
        return self.clients if self.joins is None else self.clients[self.joins <= number]

    def of(self, clients: NDArray[np.int64]) -> NDArray[np.int64]:
        """The numbers of samples of some of them."""
        return self.samples[np.searchsorted(self.clients, clients)]

    def sites_of(self, clients: NDArray[np.int64]) -> NDArray[np.int64] | None:
        """The sites of some of them."""
        return None if self.sites is None else self.sites[np.searchsorted(self.clients, clients)]


SamplePart = Literal["train", "test", "all"]
"""Of a client's samples: those it trains on, its own test part, or both."""


class ClientData(Protocol):
    """The samples, where a block runs: inputs [n, *shape] and labels, in memory of their own; see `Work`."""

    def samples(self, client: int, part: SamplePart) -> tuple[torch.Tensor, torch.Tensor]:
        """A part of a client's samples."""
        ...

    def union(self, clients: Sequence[int], part: SamplePart) -> tuple[torch.Tensor, torch.Tensor]:
        """A part of the samples of several clients, end to end."""
        ...

    def test_slice(self, number: int, domain: str | None = None) -> tuple[torch.Tensor, torch.Tensor]:
        """A fixed slice of the global test set, or of a domain's."""
        ...


@dataclass(frozen=True)
class Worker:
    """What a block finds where it runs.

    Args:
        resident: the models.
        data: the samples.
        kept: what clients keep.
        trainer: trains the models.
        augment: what changes samples in training, and only there; None where they stay.
    """

    resident: Resident
    data: ClientData
    personal: PersonalStore
    trainer: Trainer
    augment: Augment | None = None


@dataclass(frozen=True)
class Block:
    """A slice of the work, in client-id order: what one call runs and what is summed before it is sent.

    Args:
        number: its place in the order of sums.
        clients: ids, ascending (for other work: numbers of slices).
        size: samples it goes through; longer blocks start first.
        rows: what the function needs for each client, small and picklable.
        references: values of the fleet that only this block needs, resolved where it runs.
        site: that its clients are of, and where a fleet may have to run it; `SEVERAL` where they are of more than
            one, None where it needs no client's samples, or there are no sites.
    """

    number: int
    clients: tuple[int, ...]
    size: int
    rows: tuple[Any, ...] = ()
    references: tuple[Reference, ...] = ()
    site: int | None = None


@dataclass(frozen=True)
class Output:
    """What a block's function returns: a value for the driver, and objects that stay where they were made."""

    value: Any
    objects: tuple[Any, ...] = ()


@dataclass(frozen=True)
class Outcome:
    """What a fleet returns of some neighbouring blocks.

    Args:
        node: which blocks.
        value: the function's values, joined.
        objects: references to the objects that they left behind, block after block.
        machine: for each block facts of this execution (`seconds`, `actor`), never of the result.
    """

    node: Node
    value: Any
    objects: tuple[Reference, ...]
    machine: tuple[dict[str, float], ...]


class Function(Protocol):
    """Work that a fleet maps over blocks: a picklable value."""

    def objects(self, block: Block) -> int:
        """How many objects a block leaves behind."""
        ...

    def join(self, left: Any, right: Any) -> Any:
        """The value of two neighbours together; may change the left one."""
        ...

    def __call__(self, worker: Worker, block: Block, *values: Any) -> Output:
        """Run a block.

        Args:
            bench: what is resident here.
            block: the block, its references removed.
            values: the common references' values, then the block's own.
        """
        ...


class Fleet(Protocol):
    """What runs blocks: this process, or client actors. The result never depends on which."""

    @property
    def census(self) -> Census:
        """The training clients."""
        ...

    @property
    def layouts(self) -> Layouts:
        """How the resident model's entries are divided."""
        ...

    def block_size(self, cohort: int) -> int:
        """Clients a block, a function of the configuration and the cohort's size alone."""
        ...

    def put(self, value: Any) -> Reference:
        """Hold a value for the blocks of a `map`."""
        ...

    def map(
        self, function: Function, blocks: Sequence[Block], references: Sequence[Reference] = ()
    ) -> Iterator[Outcome]:
        """Run the function on every block, in any order; the outcomes come in the blocks' order, as soon as they can.

        An outcome is of a node of the tree over the blocks (see `algorithms.engine.tree`); of which is the fleet's choice.
        Blocks may be under way before the first outcome is asked for, and those of several maps side by side.
        """
        ...


def cut(count: int, size: int, sites: Sequence[int] | NDArray[np.int64] | None = None) -> list[slice]:
    """Cut a row of clients into blocks: neighbours, at most so many together, and never of two sites.

    Args:
        count: how many there are.
        size: clients a block.
        sites: of each; None where there are none. Every change of site, from left to right, begins a block.
    """
    changes = [] if sites is None else (np.flatnonzero(np.diff(sites)) + 1).tolist()
    runs = pairwise([0, *changes, count])
    return [slice(start, min(start + size, stop)) for first, stop in runs for start in range(first, stop, size)]


def common_site(sites: Sequence[int] | NDArray[np.int64] | None) -> int | None:
    """The one site of some clients, or `SEVERAL`; None where there are no sites."""
    if sites is None or not len(sites):
        return None
    return int(sites[0]) if np.all(np.equal(sites, sites[0])) else SEVERAL


def block_over(clients: NDArray[np.int64], fleet: Fleet, number: int = 0) -> Block:
    """The block of all these clients, which needs nothing but their samples."""
    samples, site = int(fleet.census.of(clients).sum()), common_site(fleet.census.sites_of(clients))
    return Block(number, tuple(clients.tolist()), samples, site=site)


def blocks_over(clients: NDArray[np.int64], fleet: Fleet) -> list[Block]:
    """Cut clients into blocks that need nothing but their samples."""
    parts = cut(len(clients), fleet.block_size(len(clients)), fleet.census.sites_of(clients))
    return [block_over(clients[part], fleet, number) for number, part in enumerate(parts)]
