"""Blocks over clients' samples, for work that needs no other input: passes over statistics, unions, exchanges."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from algorithms.core.fleet import SEVERAL, Block, Fleet, cut


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
