"""Columns that parts of a user's own add to the tables of an algorithm."""

import pytest

from algorithms import Algorithm, Local, Participation, fedavg
from algorithms.heterofl import Sizes
from raysim.common.errors import InputError
from raysim.store.tables import check_columns


class Graded(Sizes):
    """A user's own variant, whose columns depend on the levels as those of `Sizes` do."""


class Loud(Sizes):
    @property
    def columns(self) -> tuple[str, ...]:  # type: ignore[override]
        return (*super().columns, "bytes_up")


def with_sizes(sizes: Sizes) -> Algorithm:
    return fedavg(Participation(cohort=2), Local()).having(sizes)


def test_a_variant_of_an_option_may_have_its_columns() -> None:
    check_columns(with_sizes(Graded()), ["level_1_updates"])
    with pytest.raises(InputError, match=r"option Loud.*: its `columns` has 'bytes_up': must be a new name"):
        check_columns(with_sizes(Loud()), ["level_1_updates"])
