"""Timeouts of client actors and their calls, and the number of retries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

START_SECONDS = 180
"""Time that Ray and actors may take to start. On a busy machine importing torch alone takes many seconds."""


@dataclass(frozen=True)
class ActorTimeouts:
    """Limits after which an actor counts as hung, and after which a run gives up.

    A call may take, from the return of the call before it,

        (floor + factor max(slowest second a sample x its samples, slowest second a block x its blocks)) 2^deaths

    seconds. The slowest values are those of earlier calls of the same kind; before the first call the limit is
    `unseen`. The limit doubles after each actor that was killed for the call, to let slow work finish.

    Args:
        factor: allowed slowdown relative to the slowest earlier call.
        floor: seconds for costs that do not grow with the work, such as fetching models from a busy node.
        unseen: seconds for a call of a kind that has not returned yet.
        retries: number of times that a block runs again after its actor died.
        start: seconds until an actor must be ready.
        starts: failed starts in a row after which an actor is given up, or Ray itself if the run needs it.
        pause: seconds until Ray is started again after a failure.
        place: seconds that an actor waits for resources before a notice.
        look: seconds between two checks for actors that do not answer.
    """

    factor: float = 20
    floor: float = 60
    unseen: float = 20 * START_SECONDS
    retries: int = 3
    start: float = START_SECONDS
    starts: int = 3
    pause: float = 30
    place: float = 15
    look: float = 1


class CallTimes:
    """Measured durations of calls, by the type of their function."""

    def __init__(self) -> None:
        self._latest: dict[type[Any], float] = {}
        self._slowest: dict[type[Any], tuple[float, float]] = {}

    def add(self, function: object, seconds: Sequence[float], samples: int) -> None:
        """Record a call.

        Args:
            function: function of the call.
            seconds: duration of each block.
            samples: samples of all blocks.
        """
        kind, total = type(function), sum(seconds)
        if samples:
            self._latest[kind] = total / samples
        of_sample, of_block = self._slowest.get(kind, (0.0, 0.0))
        self._slowest[kind] = max(of_sample, total / max(1, samples)), max(of_block, *seconds)

    def samples(self, function: object, seconds: float) -> float:
        """Return the number of samples that take this time; 0 before the first call."""
        return seconds / self._latest.get(type(function), float("inf"))

    def limit(self, function: object, samples: int, blocks: int, timeouts: ActorTimeouts) -> float:
        """Return the seconds after which a call counts as hung; see `ActorTimeouts`."""
        if type(function) not in self._slowest:
            return timeouts.unseen
        of_sample, of_block = self._slowest[type(function)]
        return timeouts.floor + timeouts.factor * max(of_sample * samples, of_block * blocks)
