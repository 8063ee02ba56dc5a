"""Weighted draws without replacement."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from algorithms.core.errors import InputError


def draw_weighted(
    weights: NDArray[np.float64], size: int, rng: np.random.Generator, fixed: bool = True
) -> NDArray[np.int64]:
    """Draw indices one after the other without replacement, each in proportion to its weight.

    The `size` largest of log(u_k) / w_k, with u_k uniform in (0, 1]: O(K) a draw (Efraimidis and Spirakis 2006).

    Args:
        weights: >= 0, [K]; an index of weight 0 is never drawn.
        size: number of indices, at most K.
        rng: source of the draws.
        fixed: whether `size` is fixed. Otherwise too few weights above 0 give fewer indices, and none gives equal
            chances: weights that change during a run must not end it.

    Raises:
        InputError: `size` is fixed, and fewer weights are above 0.
    """
    positive = int(np.count_nonzero(weights > 0))
    if not fixed and not positive:
        return rng.choice(len(weights), size, replace=False, shuffle=False)
    if not fixed:
        size = min(size, positive)
    if positive < size:
        raise InputError(
            f"a cohort of {size} clients, {positive} of them with a chance above 0: must be at most {positive}; "
            'set a smaller algorithm.cohort, or algorithm.sampling = "uniform"'
        )
    with np.errstate(divide="ignore"):  # a weight of 0 gives minus infinity, which comes last
        keys = -rng.standard_exponential(len(weights)) / weights
    drawn: NDArray[np.int64] = np.argpartition(keys, len(weights) - size)[len(weights) - size :]
    return drawn
