"""Reductions of a column over the rounds of a run to one number, for claims and figures.

| take | number |
|---|---|
| `final` | value of the selected model |
| `last`, `best`, `least`, `mean` | last, largest, smallest and mean value over the rounds |
| `jitter` | standard deviation of the changes from one value to the next |
| `growth` | last minus first value of each whole `period`, averaged over the periods |
| `reached` | first round at `level`; infinity if there is none |
| `population` | a column of RADFed's table I about the clients: min, max, mean, std, c_score |
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Literal

import numpy as np

from raysim.common.errors import InputError
from raysim.measures.selection import reaches

Take = Literal["final", "last", "best", "least", "mean", "jitter", "growth", "reached", "population"]

TAKEN: Mapping[str, Callable[[Sequence[float]], float]] = {
    "last": lambda values: values[-1],
    # NumPy propagates NaN; Python's max and min depend on its position.
    "best": lambda values: float(np.max(values)),
    "least": lambda values: float(np.min(values)),
    "mean": lambda values: float(np.mean(values)),
    "jitter": lambda values: float(np.std(np.diff(values))) if len(values) > 2 else np.nan,
}
"""Reductions that need the values alone."""

OF_ROUNDS = (*TAKEN, "growth", "reached")
"""Reductions over rounds."""


def growth(values: Sequence[float], period: int) -> float:
    """Return last minus first value of a period, averaged over all whole periods.

    Raises:
        InputError: there are fewer values than a period.
    """
    whole = len(values) // period * period
    if not whole:
        raise InputError(
            f"period = {period}: must be at most {len(values)}, the number of values; set more rounds, or a shorter one"
        )
    periods = np.reshape(values[:whole], (-1, period))
    return float(np.mean(periods[:, -1] - periods[:, 0]))


def reached(column: str, rounds: Sequence[int], values: Sequence[float], level: float) -> float:
    """Return the first round in which a column reaches `level`; infinity if it never does."""
    reaching = (
        round_number for round_number, value in zip(rounds, values, strict=True) if reaches(column, value, level)
    )
    return float(next(reaching, np.inf))


def round_of(reach: int | float | None, total: int, default: int) -> float:
    """Return a round from a number, a fraction of `total`, or the default."""
    if reach is None:
        return default
    return reach if isinstance(reach, int) else reach * total
