"""Number of actors that share a GPU or another resource: plain arithmetic."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, floor, inf

from raysim.common.errors import InputError
from raysim.data.shards import DEVICE_SHARE

CONTEXT_BYTES = 600 * 2**20
"""Allowance for a process's GPU memory beside torch's tensors: CUDA context and loaded kernels."""

MARGIN = 0.1
"""Free share of an actor's part of a GPU: torch's allocator does not fill every gap."""

MAX_SHARERS = 16
"""Largest number of actors on a GPU. More gain nothing, because their kernels run one after the other."""

UNIT = 10_000
"""Smallest parts of a GPU that Ray counts."""


def sharers(peak: int, total: int, context: int = CONTEXT_BYTES, margin: float = MARGIN + DEVICE_SHARE) -> int:
    """Return the number of actors that fit the memory of a GPU.

    It is the largest k from 1 to 16 with

        peak + context <= (1 - margin) total / k

    It is 1 if no k fits, because one actor did reach this peak on the GPU.

    Args:
        peak: most bytes that torch took, in one process.
        total: bytes of the GPU.
        context: bytes that a process takes beside them.
        margin: free share, for gaps and for the data that actors keep.
    """
    return min(MAX_SHARERS, max(1, floor((1 - margin) * total / (peak + context))))


def arranged(sharers: int, gpus: int, places: int, actors: int | None = None) -> tuple[int, int]:
    """Return the number of actors, and how many share a GPU.

    Spread the actors over all GPUs: Ray packs, and would leave whole GPUs idle.

    Args:
        sharers: actors that fit a GPU.
        gpus: number of GPUs.
        places: actors that fit the CPUs.
        actors: wanted number; None for as many as fit.

    Raises:
        InputError: the GPUs do not hold the wanted number.
    """
    most = sharers * gpus
    if actors is not None and actors > most:
        raise InputError(
            f"fleet.actors = {actors}: must be at most {most}, because the memory of a GPU holds {sharers} and Ray has "
            f"{gpus}; set fleet.actors = {most}"
        )
    actors = actors or max(1, min(most, places))
    return actors, ceil(actors / gpus)


def fraction(sharers: int) -> float:
    """Return the part of a GPU for each sharer, rounded down to Ray's unit to let the last one fit."""
    return UNIT // sharers / UNIT


def capacity(each: float, nodes: Sequence[float]) -> float:
    """Return the number of actors that fit. An actor never spans two nodes, nor a fraction two devices.

    Args:
        each: amount of a resource that an actor takes.
        nodes: amount of it on each node.
    """
    if each == 0:
        return inf
    if each < 1:
        # The millionth makes 1 / (1 / 3) at least 3 despite rounding.
        return sum(floor(there) for there in nodes) * floor(1 / each + 1e-6)
    return sum(floor(there / each) for there in nodes)
