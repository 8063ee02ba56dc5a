"""Estimate of the time that an algorithm's remaining rounds take."""

from collections import deque
from time import monotonic

WINDOW = 32
"""Newest rounds that an estimate is made from."""


class Remaining:
    """Estimate of the seconds left, from the newest rounds.

    The first round after the start also loads libraries, data and actors, so it does not count: before the second
    one ends there is no estimate.

    Args:
        rounds: number of the last round.
    """

    def __init__(self, rounds: int) -> None:
        self._rounds = rounds
        self._ends: deque[tuple[int, float]] = deque(maxlen=WINDOW + 1)

    def round(self, number: int) -> None:
        """Record the end of a round; a round that is run again replaces its first run and the later ones."""
        while self._ends and self._ends[-1][0] >= number:
            self._ends.pop()
        self._ends.append((number, monotonic()))

    def seconds(self) -> float | None:
        """Return the seconds left; None before the second round of this command has ended."""
        if len(self._ends) < 2:
            return None
        (first, since), (last, until) = self._ends[0], self._ends[-1]
        per_round = (until - since) / (last - first)
        left = self._rounds - last
        # A round that takes longer than those before it still has the later ones after it.
        return max(per_round * left - (monotonic() - until), per_round * max(0, left - 1))
