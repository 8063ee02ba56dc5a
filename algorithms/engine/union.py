"""Training on the union of clients' samples, the baseline of a federation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from algorithms.engine.client_update import BlockResult, ClientInput, ClientUpdates
from algorithms.engine.clients import ClientData, SamplePart
from algorithms.engine.errors import DivergedError
from algorithms.engine.fleet import Block, Function, Output, Worker


@dataclass(frozen=True)
class Union:
    """Samples of some clients as if one client had them all, in client-id order.

    Args:
        data: samples of the clients.
        clients: ids of the clients.
    """

    data: ClientData
    clients: Sequence[int]

    def samples(self, client: int, part: SamplePart) -> tuple[torch.Tensor, torch.Tensor]:
        """Return a part of all samples, for any client."""
        return self.data.union(self.clients, part)

    def union(self, clients: Sequence[int], part: SamplePart) -> tuple[torch.Tensor, torch.Tensor]:
        """Return a part of all samples, for any clients."""
        return self.data.union(self.clients, part)

    def test_slice(self, number: int, domain: str | None = None) -> tuple[torch.Tensor, torch.Tensor]:
        """Return a slice of the test set, which belongs to no client."""
        return self.data.test_slice(number, domain)


@dataclass(frozen=True)
class UnionUpdate(Function):
    """One client update on all samples of a block's clients, with the random draws of the first client.

    If the block has one client, it equals that client's update.

    Args:
        updates: settings of the client update.
        name: name of the trained model in error messages.
    """

    updates: ClientUpdates
    name: str = "the union of the clients"

    def join(self, left: BlockResult, right: BlockResult) -> BlockResult:
        return self.updates.join(left, right)

    def __call__(self, worker: Worker, block: Block, *values: Any) -> Output:
        union = replace(worker, data=Union(worker.data, block.clients))
        first = replace(block, clients=block.clients[:1], inputs=(ClientInput(None, 0.0),))
        try:
            return self.updates(union, first, *values)
        except DivergedError as error:
            raise DivergedError(f"{self.name}, trained as {error}") from None
