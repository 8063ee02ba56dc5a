"""How long actors are waited for, and how often what they leave undone is tried again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

START_SECONDS = 180
"""How long Ray and actors may take to start: on a busy machine importing torch alone takes many seconds."""


@dataclass(frozen=True)
class Patience:
    """When an actor counts as hung, and when a run is given up.

    A call may take, from when the one before it came back,

        (floor + factor max(slowest second a sample x its samples, slowest second a block x its blocks)) 2^deaths

    seconds, the slowest being those of its kind so far; `unseen` where there was none. Each time that its actor was
    ended for it, it may take twice as long: what only is slow gets through.

    Args:
        factor: by how much a call may be slower than the slowest one.
        floor: seconds, for what does not grow with the work, such as fetching models from a busy node.
        unseen: seconds of a call of whose kind none has come back yet.
        retries: how often a block runs again whose actor died.
        start: seconds in which an actor has to be there.
        starts: how often in a row it may fail to be.
        place: seconds that an actor waits for resources that no living node has, before that is told.
        look: seconds between two looks at who does not answer.
    """

    factor: float = 20
    floor: float = 60
    unseen: float = 20 * START_SECONDS
    retries: int = 3
    start: float = START_SECONDS
    starts: int = 3
    place: float = 15
    look: float = 1


class Pace:
    """How long blocks took so far, by the kind of what was done with them."""

    def __init__(self) -> None:
        self._latest: dict[type[Any], float] = {}
        self._slowest: dict[type[Any], tuple[float, float]] = {}

    def took(self, function: object, seconds: Sequence[float], samples: int) -> None:
        """Take note of some blocks.

        Args:
            function: what was done.
            seconds: that each block took.
            samples: of all of them.
        """
        kind, total = type(function), sum(seconds)
        if samples:
            self._latest[kind] = total / samples
        of_sample, of_block = self._slowest.get(kind, (0.0, 0.0))
        self._slowest[kind] = max(of_sample, total / max(1, samples)), max(of_block, *seconds)

    def samples(self, function: object, seconds: float) -> float:
        """Samples that take so long, as far as it is known; else 0."""
        return seconds / self._latest.get(type(function), float("inf"))

    def limit(self, function: object, samples: int, blocks: int, patience: Patience) -> float:
        """Seconds after which a call counts as hung; see `Patience`."""
        if type(function) not in self._slowest:
            return patience.unseen
        of_sample, of_block = self._slowest[type(function)]
        return patience.floor + patience.factor * max(of_sample * samples, of_block * blocks)
