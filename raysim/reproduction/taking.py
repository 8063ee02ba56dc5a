"""What a claim or a figure takes of a column: one number of a run's rounds.

| take | the number |
|---|---|
| `final` | the chosen model's value |
| `last`, `best`, `least`, `mean` | the last, the largest, the smallest and the mean value over the rounds |
| `jitter` | the standard deviation of the changes from one value to the next |
| `growth` | what the last value of each `period` is above its first, in the mean of all whole periods |
| `reached` | the first round at `level`, infinity where there is none |
| `population` | of the data set's clients, a column of RADFed's table I: min, max, mean, std, c_score |
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal

import numpy as np

from raysim.common.errors import InputError
from raysim.measures.selection import reaches

Take = Literal["final", "last", "best", "least", "mean", "jitter", "growth", "reached", "population"]

TAKEN: Mapping[str, Callable[[Sequence[float]], float]] = {
    "last": lambda values: values[-1],
    # Not a number stays one, wherever it stands: Python's own depend on the order.
    "best": lambda values: float(np.max(values)),
    "least": lambda values: float(np.min(values)),
    "mean": lambda values: float(np.mean(values)),
    "jitter": lambda values: float(np.std(np.diff(values))) if len(values) > 2 else np.nan,
}
"""What is taken of values alone."""

OF_ROUNDS = (*TAKEN, "growth", "reached")
"""What is taken of values by round."""


def growth(values: Sequence[float], period: int) -> float:
    """What the last value of a period is above its first, in the mean of all whole periods.

    Raises:
        InputError: there is no whole period.
    """
    whole = len(values) // period * period
    if not whole:
        raise InputError(f"{len(values)} values are no period of {period}: must be more; set rounds")
    periods = np.reshape(values[:whole], (-1, period))
    return float(np.mean(periods[:, -1] - periods[:, 0]))


def reached(column: str, rounds: Sequence[int], values: Sequence[float], level: float) -> float:
    """The first round in which a column is as good as `level`; infinity where there is none."""
    there = (number for number, value in zip(rounds, values, strict=True) if reaches(column, value, level))
    return float(next(there, np.inf))


def round_of(reach: int | float | None, total: int, default: int) -> float:
    """A round that is given as a number, or as a share of all."""
    if reach is None:
        return default
    return reach if isinstance(reach, int) else reach * total
