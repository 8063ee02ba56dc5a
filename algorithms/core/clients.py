"""Training clients and their data, as an algorithm and its fleet see them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from algorithms.core.devices import Devices

if TYPE_CHECKING:
    import torch

SamplePart = Literal["train", "test", "all"]
"""Part of a client's samples: those that it trains on, its own test part, or both."""


@dataclass(frozen=True)
class Census:
    """Training clients and their numbers of samples.

    Args:
        clients: ids in ascending order, int64 [K].
        samples: training samples of each client, int64 [K].
        joins: first round of each client, int64 [K]; None if all clients are there from the first round.
        sites: site of each client, int64 [K]; None if the population has no sites.
        devices: devices of the clients in virtual time; None if that is not simulated.
        facts: further columns of the clients that options read, by name, int64 [K] each; see `Option.reads`.
    """

    clients: NDArray[np.int64]
    samples: NDArray[np.int64]
    joins: NDArray[np.int64] | None = None
    sites: NDArray[np.int64] | None = None
    devices: Devices | None = None
    facts: Mapping[str, NDArray[np.int64]] = field(default_factory=dict)

    def joined(self, round_number: int) -> NDArray[np.int64]:
        """Return the clients that have joined by a round, in ascending order."""
        return self.clients if self.joins is None else self.clients[self.joins <= round_number]

    def of(self, clients: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the numbers of samples of some clients."""
        return self.samples[np.searchsorted(self.clients, clients)]

    def sites_of(self, clients: NDArray[np.int64]) -> NDArray[np.int64] | None:
        """Return the sites of some clients; None if there are no sites."""
        return None if self.sites is None else self.sites[np.searchsorted(self.clients, clients)]


def among(ids: NDArray[np.int64], clients: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return whether each id is one of the clients, [n]. `clients` ascends, so no table of all ids is made."""
    if not len(clients):
        return np.zeros(len(ids), np.bool_)
    found: NDArray[np.bool_] = clients[np.minimum(np.searchsorted(clients, ids), len(clients) - 1)] == ids
    return found


class ClientData(Protocol):
    """Samples as a worker reads them: inputs [n, *shape] and labels, in memory of their own; see `Work`."""

    def samples(self, client: int, part: SamplePart) -> tuple[torch.Tensor, torch.Tensor]:
        """Return a part of a client's samples."""
        ...

    def union(self, clients: Sequence[int], part: SamplePart) -> tuple[torch.Tensor, torch.Tensor]:
        """Return a part of the samples of several clients, end to end."""
        ...

    def test_slice(self, number: int, domain: str | None = None) -> tuple[torch.Tensor, torch.Tensor]:
        """Return a fixed slice of the global test set, or of a domain's test set."""
        ...

    def scored(
        self, owners: Sequence[int], part: SamplePart | None, domain: str | None = None
    ) -> tuple[torch.Tensor, torch.Tensor, NDArray[np.int64]]:
        """Return the samples that a block of an evaluation scores, end to end, and the number of each owner's.

        Args:
            owners: clients, or slices of a test set.
            part: part of each client's samples; None for slices.
            domain: domain of the test set; None for the global one.
        """
        ...
