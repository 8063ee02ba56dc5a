"""The `Fleet` protocol, which runs blocks of work, and the values that pass through it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from algorithms.core.clients import Census
from algorithms.core.layout import Layouts
from algorithms.core.tree import Node, join_all

SEVERAL = -1
"""Value of `Block.site` if the clients are of more than one site."""

Reference = Any
"""Opaque handle of a value that a fleet holds; only the worker that runs a block resolves it."""


@dataclass(frozen=True)
class Block:
    """Slice of the work, in client-id order: one call runs it, and it is summed before it is sent.

    Args:
        number: position in the order of sums.
        clients: ids in ascending order; for other work the numbers of slices.
        size: samples that pass the model; longer blocks start first.
        inputs: the function's input for each client, small and picklable.
        references: values of the fleet that only this block needs.
        site: site of the clients, if a fleet may have to run the block there; `SEVERAL` for clients of more than one
            site; None if the block needs no client's samples, or if there are no sites.
    """

    number: int
    clients: tuple[int, ...]
    size: int
    inputs: tuple[Any, ...] = ()
    references: tuple[Reference, ...] = ()
    site: int | None = None


@dataclass(frozen=True)
class Output:
    """Output of a function on one block: a value for the driver, and objects that stay with the worker."""

    value: Any
    objects: tuple[Any, ...] = ()


@dataclass(frozen=True)
class Outcome:
    """Joined outputs of some neighbouring blocks.

    Args:
        node: range of blocks.
        value: joined values of the function.
        objects: references to the objects that the blocks left behind, in the order of blocks.
        machine: facts of this execution for each block (`seconds`, `actor`); never part of the result.
    """

    node: Node
    value: Any
    objects: tuple[Reference, ...]
    machine: tuple[dict[str, float], ...]


@runtime_checkable
class Function(Protocol):
    """Work that a fleet maps over blocks: a picklable value."""

    driver_may_hold: ClassVar[bool] = False
    """Whether the driver may run blocks that leave objects behind, of any size."""

    def objects(self, block: Block) -> int:
        """Return how many objects a block leaves behind."""
        return 0

    def join(self, left: Any, right: Any) -> Any:
        """Join the values of two neighbours, by default by adding them; this may change the left one."""
        return left + right

    def __call__(self, worker: Any, block: Block, *values: Any) -> Output:
        """Run a block.

        Args:
            worker: worker that runs the block, an `algorithms.training.worker.Worker`.
            block: the block, without its references.
            values: values of the common references, then those of the block's own references.
        """
        ...


@dataclass(frozen=True)
class Around(Function):
    """Function around another one: by default it leaves the same objects behind, and joins values as that one does.

    Args:
        inner: function that it calls.
    """

    inner: Function

    def objects(self, block: Block) -> int:
        return self.inner.objects(block)

    def join(self, left: Any, right: Any) -> Any:
        return self.inner.join(left, right)


class Fleet(Protocol):
    """Runner of blocks: this process, or client actors. The result never depends on the choice."""

    @property
    def census(self) -> Census:
        """Training clients."""
        ...

    @property
    def layouts(self) -> Layouts:
        """Layouts of the model's shared, personal and frozen entries."""
        ...

    def block_size(self, cohort: int) -> int:
        """Return the number of clients in a block: a function of the configuration and the cohort's size alone."""
        ...

    def put(self, value: Any) -> Reference:
        """Hold a value for the blocks of a `map`."""
        ...

    def map(
        self, function: Function, blocks: Sequence[Block], references: Sequence[Reference] = ()
    ) -> Iterator[Outcome]:
        """Run the function on every block, in any order; yield the outcomes in the order of the blocks.

        An outcome belongs to a node of the tree over the blocks (see `algorithms.core.tree`). The fleet chooses the
        nodes. Blocks may start before the first outcome is asked for, and several maps may run side by side.
        """
        ...


def map_joined(
    fleet: Fleet, function: Function, blocks: Sequence[Block], references: Sequence[Reference] = ()
) -> tuple[Any, list[Reference]]:
    """Run a function on at least one block; return the joined value and references to the objects left behind."""
    return joined(function, blocks, fleet.map(function, blocks, references))


def joined(function: Function, blocks: Sequence[Block], outcomes: Iterable[Outcome]) -> tuple[Any, list[Reference]]:
    """Join the outcomes of a map along the tree over its blocks; see `map_joined`."""
    objects: list[Reference] = []

    def parts() -> Iterator[tuple[Node, Any]]:
        for outcome in outcomes:
            objects.extend(outcome.objects)
            yield outcome.node, outcome.value

    return join_all(Node(0, len(blocks)), parts(), function.join), objects


def cut(count: int, size: int, sites: Sequence[int] | NDArray[np.int64] | None = None) -> list[slice]:
    """Cut a row of clients into blocks of neighbours of one site.

    Args:
        count: number of clients.
        size: clients in a block, at most.
        sites: site of each client; None if there are no sites. Each change of the site begins a block.
    """
    changes = [] if sites is None else (np.flatnonzero(np.diff(sites)) + 1).tolist()
    runs = pairwise([0, *changes, count])
    return [slice(start, min(start + size, stop)) for first, stop in runs for start in range(first, stop, size)]


def common_site(sites: Sequence[int] | NDArray[np.int64] | None) -> int | None:
    """Return the one site of some clients, or `SEVERAL`; None if there are no sites."""
    if sites is None or not len(sites):
        return None
    return int(sites[0]) if np.all(np.equal(sites, sites[0])) else SEVERAL


def block_over(clients: NDArray[np.int64], fleet: Fleet, number: int = 0) -> Block:
    """Return one block of all these clients."""
    samples, site = int(fleet.census.of(clients).sum()), common_site(fleet.census.sites_of(clients))
    return Block(number, tuple(clients.tolist()), samples, site=site)


def blocks_over(clients: NDArray[np.int64], fleet: Fleet) -> list[Block]:
    """Cut clients into blocks."""
    parts = cut(len(clients), fleet.block_size(len(clients)), fleet.census.sites_of(clients))
    return [block_over(clients[part], fleet, number) for number, part in enumerate(parts)]
