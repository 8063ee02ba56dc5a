"""Training on the union of clients' samples, the baseline of a federation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from algorithms.core.clients import ClientData, SamplePart
from algorithms.core.errors import DivergedError
from algorithms.core.fleet import Around, Block, Output
from algorithms.parts.client_update import NO_INPUT
from algorithms.training.worker import Worker


@dataclass(frozen=True)
class UnionData:
    """Samples of several clients as those of one.

    Args:
        data: samples of all clients.
        clients: clients that provide the samples together.
    """

    data: ClientData
    clients: Sequence[int]

    def samples(self, client: int, part: SamplePart) -> tuple[torch.Tensor, torch.Tensor]:
        """Return a part of the clients' samples, end to end."""
        return self.data.union(self.clients, part)


@dataclass(frozen=True)
class UnionUpdate(Around):
    """One client update on all samples of a block's clients, with the random draws of the first client.

    If the block has one client, it equals that client's update.

    Args:
        name: name of the trained model in error messages.
    """

    name: str = "the union of the clients"

    def __call__(self, worker: Worker, block: Block, *values: Any) -> Output:
        first = replace(block, clients=block.clients[:1], inputs=(NO_INPUT,))
        data: Any = UnionData(worker.data, block.clients)  # a client update reads nothing else
        try:
            # The union is one long update, whose rank would be that of its weights.
            output = self.inner(replace(worker, data=data, low_rank=None), first, *values)
        except DivergedError as error:
            raise DivergedError(f"{self.name}, trained as {error}") from None
        personal = output.value.personal
        for stored in output.value.rows.personal:  # at most one
            if stored is not None and personal.total == 0:
                # The next update begins with these entries, which count this one although it took no step.
                personal.add(worker.personal.read(stored), 1.0)
        return output
