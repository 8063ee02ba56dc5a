"""Mean and standard deviation of a few values."""

from collections.abc import Iterable

import numpy as np


def mean_and_std(values: Iterable[float]) -> tuple[float, float | None]:
    """Return the mean and the sample standard deviation of values.

    Args:
        values: of the trials.

    Returns:
        The mean, NaN without values. The deviation, with n - 1 in the denominator, None below two values.
    """
    every = np.fromiter(values, np.float64)
    if not every.size:
        return float("nan"), None
    with np.errstate(invalid="ignore"):  # infinity minus infinity, if a target was never reached
        return float(np.mean(every)), float(np.std(every, ddof=1)) if every.size > 1 else None
