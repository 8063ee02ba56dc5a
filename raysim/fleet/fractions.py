"""How many actors share a GPU, or any other resource: plain arithmetic."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, floor, inf

from raysim.common.errors import InputError
from raysim.data.shards import DEVICE_SHARE

CONTEXT_BYTES = 600 * 2**20
"""An allowance for what a process takes of a GPU beside torch's tensors: the CUDA context, the loaded kernels."""

MARGIN = 0.1
"""How much of an actor's part of a GPU is left free: torch's allocator does not fill every gap."""

MOST_SHARERS = 16
"""No more actors share a GPU than this: their kernels run one after the other all the same."""

UNIT = 10_000
"""Ray counts in so many parts of a GPU."""


def sharers(peak: int, total: int, context: int = CONTEXT_BYTES, margin: float = MARGIN + DEVICE_SHARE) -> int:
    """How many actors a GPU holds, by its memory.

    The largest k of 1 to 16 with

        peak + context <= (1 - margin) total / k

    It is 1 where not even that holds, for alone on the GPU the peak was reached.

    Args:
        peak: bytes that torch took at most, in one process.
        total: bytes of the GPU.
        context: bytes that a process takes beside those.
        margin: the part that stays free for what the peak does not show: gaps, and the data that actors keep.
    """
    return min(MOST_SHARERS, max(1, floor((1 - margin) * total / (peak + context))))


def arranged(sharers: int, gpus: int, places: int, actors: int | None = None) -> tuple[int, int]:
    """How many actors there are, and how many of them share a GPU.

    No more of them share one than must: Ray packs, and would leave whole GPUs idle.

    Args:
        sharers: how many a GPU holds.
        gpus: how many there are.
        places: actors that the CPUs hold.
        actors: how many the user asks for; None for as many as possible.

    Raises:
        InputError: the GPUs do not hold so many.
    """
    most = sharers * gpus
    if actors is not None and actors > most:
        raise InputError(
            f"fleet.actors = {actors}: must be at most {most}, for by its memory a GPU holds {sharers}, and Ray has "
            f"{gpus}; set fleet.actors = {most}"
        )
    actors = actors or max(1, min(most, places))
    return actors, ceil(actors / gpus)


def fraction(sharers: int) -> float:
    """The part of a GPU that each takes, rounded down to what Ray counts in, for else the last would not fit."""
    return UNIT // sharers / UNIT


def capacity(each: float, nodes: Sequence[float]) -> float:
    """How many actors fit the nodes: one never spans two of them, and a fraction never spans two devices.

    Args:
        each: what an actor takes of a resource.
        nodes: what each node has of it.
    """
    if each == 0:
        return inf
    if each < 1:
        # A millionth, for 1 / (1 / 3) need not be 3.
        return sum(floor(there) for there in nodes) * floor(1 / each + 1e-6)
    return sum(floor(there / each) for there in nodes)
