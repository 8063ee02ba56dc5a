from collections.abc import Sequence
from copy import deepcopy

import numpy as np
import pytest

from algorithms import Layout, Packed, Sum
from algorithms.core.entries import Entry, Kind
from algorithms.core.sums import PIECE

LAYOUT = Layout((Entry("w", (2,), Kind.WEIGHT), Entry("n", (), Kind.STATISTIC, integer=True)))


def packed(a: float, b: float, counter: int) -> Packed:
    one = Packed(np.zeros(LAYOUT.floats, np.float32), np.zeros(LAYOUT.integers, np.int64))
    one.floats[:2] = a, b
    one.integers[0] = counter
    return one


def sum_of(*pairs: tuple[Packed, float]) -> Sum:
    whole = Sum.zero(LAYOUT)
    for model, weight in pairs:
        whole.add(model, weight)
    return whole


def joined(parts: Sequence[Sum]) -> Sum:
    whole = Sum.zero(LAYOUT)
    for part in deepcopy(parts):
        whole = whole.plus(part)
    return whole


def test_weighted_mean_and_largest_counter() -> None:
    mean = sum_of((packed(1, 2, 5), 1), (packed(3, 6, 4), 3)).mean()
    assert mean is not None
    assert mean.floats[:2].tolist() == [2.5, 5]
    assert mean.integers[0] == 5


def test_the_largest_counter_may_be_negative() -> None:
    whole = sum_of((packed(1, 2, -5), 1), (packed(3, 6, -4), 3))
    assert whole.integers[0] == -4
    summed = Sum.zero(LAYOUT)
    for part in (sum_of((packed(1, 2, -6), 1)), whole):
        given = part.integers.copy()
        summed.include(part.floats, part.integers, part.total)
        assert np.array_equal(part.integers, given)
    assert summed.integers[0] == -4


def test_mean_of_one_is_that_one_to_the_bit() -> None:
    rng = np.random.default_rng(0)
    model = Packed(rng.normal(size=LAYOUT.floats).astype(np.float32), np.zeros(LAYOUT.integers, np.int64))
    model.floats[0] = -0.0
    for weight in (1, 3, 7, 1797, 12345679):
        mean = joined([Sum.zero(LAYOUT), sum_of((model, weight))]).mean()
        assert mean is not None and mean.floats.tobytes() == model.floats.tobytes()


def test_without_weight_nothing_is_left() -> None:
    whole = sum_of((packed(1, 1, 9), 0))
    assert whole.mean() is None
    assert not whole.floats.any() and not whole.integers.any()


def test_partial_sums_combine_in_order() -> None:
    models = [(packed(0.1 * i, 1 / (i + 1), i), float(i + 1)) for i in range(6)]
    whole, parts = sum_of(*models), [sum_of(*models[:3]), sum_of(*models[3:])]
    both = joined(parts)
    assert both.total == whole.total
    np.testing.assert_allclose(both.floats, whole.floats, rtol=1e-15)
    # A part may be a view on shared memory, which nobody writes to.
    for part in parts:
        part.floats.flags.writeable = part.integers.flags.writeable = False
    assert parts[0].plus(parts[1]).floats.tobytes() == both.floats.tobytes()


def test_a_model_longer_than_a_piece_is_summed_whole() -> None:
    layout = Layout((Entry("w", (2 * PIECE + 3,), Kind.WEIGHT),))
    rng, whole, integers = np.random.default_rng(0), Sum.zero(layout), np.zeros(0, np.int64)
    models = [rng.normal(size=layout.floats).astype(np.float32) for _ in range(3)]
    for model, weight in zip(models, (3, 0.1, 7), strict=True):
        whole.add(Packed(model, integers), weight)
    first, second, third = (model.astype(np.float64) for model in models)
    expected = first * 3 + second * 0.1 + third * 7
    assert whole.floats.tobytes() == expected.tobytes()
    mean = whole.mean()
    assert mean is not None and mean.floats.tobytes() == (expected / (3 + 0.1 + 7)).astype(np.float32).tobytes()


def test_a_model_longer_than_the_sum_is_refused() -> None:
    # The sum ends with a piece, so that the rest of the model is a piece of its own.
    integers = np.zeros(0, np.int64)
    with pytest.raises(ValueError, match="shape"):
        Sum(np.ones(PIECE), integers, "float32", 1.0).add(Packed(np.ones(PIECE + 16, np.float32), integers), 1)
