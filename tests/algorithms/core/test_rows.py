"""Rows of client updates by column."""

import numpy as np

from algorithms.core.personal import Location
from algorithms.core.report import UpdateRows

HERE = Location("a", 8)


def test_parts_are_joined_in_order() -> None:
    one = UpdateRows.of([3, 4], [{"steps": 1.0}, {"steps": 0.0}], [2.0, 0.0], [HERE, None], [None, None])
    other = UpdateRows.of([9], [{"steps": 2.0, "score": 0.5}], [1.0], [None], ["the loss"])
    whole = UpdateRows.joined([one, UpdateRows.joined([]), other])
    assert len(whole) == 3 and whole.clients.tolist() == [3, 4, 9] and whole.weights.tolist() == [2, 0, 1]
    np.testing.assert_array_equal(whole.column("score"), [np.nan, np.nan, 0.5])
    assert whole.personal == (HERE, None, None) and whole.nonfinite == (None, None, "the loss")
    assert whole.trained.tolist() == [True, False, False] and whole.finite.tolist() == [True, True, False]
    assert whole.reports()[2] == {"steps": 2.0, "score": 0.5}
    np.testing.assert_equal(vars(whole[2:]), vars(other))


def test_no_rows_have_no_numbers() -> None:
    empty = UpdateRows.joined([])
    assert len(empty) == 0 and empty.column("loss").tolist() == [] and empty.reports() == []
