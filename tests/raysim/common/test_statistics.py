"""The mean and the deviation of a few values."""

import math

import numpy as np
import pytest

from raysim.common.statistics import mean_and_std


def test_the_deviation_has_n_minus_1_in_the_denominator() -> None:
    assert mean_and_std([1.0, 2.0, 3.0]) == (2.0, 1.0)
    assert mean_and_std([1.0]) == (1.0, None)


def test_no_value_has_no_mean_and_infinity_no_deviation() -> None:
    mean, std = mean_and_std([])
    assert math.isnan(mean) and std is None
    mean, std = mean_and_std([np.inf, 1.0])
    assert mean == np.inf and std == pytest.approx(np.nan, nan_ok=True)
