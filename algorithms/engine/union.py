"""Training on the union of clients' samples: what a federation is compared with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from algorithms.engine.client_update import BlockResult, ClientUpdates, Task
from algorithms.engine.errors import DivergedError
from algorithms.engine.fleet import Block, ClientData, Output, SamplePart, Worker


@dataclass(frozen=True)
class Union:
    """The samples of some clients as if one client had them all, in client-id order."""

    data: ClientData
    clients: Sequence[int]

    def samples(self, client: int, part: SamplePart) -> tuple[torch.Tensor, torch.Tensor]:
        """A part of all of them, whichever client is asked for."""
        return self.data.union(self.clients, part)

    def union(self, clients: Sequence[int], part: SamplePart) -> tuple[torch.Tensor, torch.Tensor]:
        """The same: of the union there is one client."""
        return self.data.union(self.clients, part)

    def test_slice(self, number: int, domain: str | None = None) -> tuple[torch.Tensor, torch.Tensor]:
        """A slice of the test set, which is nobody's."""
        return self.data.test_slice(number, domain)


@dataclass(frozen=True)
class UnionUpdate:
    """Make one visit of all samples of a block's clients, with the draws of the first: alone, it is that client's.

    Args:
        visits: how it is made.
        whose: what to call it.
    """

    updates: ClientUpdates
    whose: str = "the union of the clients"

    def objects(self, block: Block) -> int:
        return 0

    def join(self, left: BlockResult, right: BlockResult) -> BlockResult:
        return self.updates.join(left, right)

    def __call__(self, worker: Worker, block: Block, *values: Any) -> Output:
        union = replace(worker, data=Union(worker.data, block.clients))
        try:
            return self.updates(union, replace(block, clients=block.clients[:1], rows=(Task(None, 0.0),)), *values)
        except DivergedError as error:
            raise DivergedError(f"{self.whose}, visited as {error}") from None
