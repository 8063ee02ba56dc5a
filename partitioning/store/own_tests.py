"""Clients' own test parts: a share of each client's rows, or the rows that a column names."""

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from partitioning.common.checks import Integers
from partitioning.common.columns import distinct, is_label
from partitioning.common.errors import InputError

Flags = npt.NDArray[np.bool_]

TRAIN, TEST = "train", "test"
"""Values of a column that divides rows into training and test rows; `False` and `True` mean the same."""


def is_test_row(values: pa.ChunkedArray, column: str) -> Flags:
    """Return whether each row is a test row [N], by the values of a column.

    Raises:
        InputError: a value is neither "train" nor "test", nor a boolean.
    """
    if pa.types.is_boolean(values.type):
        return np.asarray(values.to_numpy(), np.bool_)
    if not len(values):
        return np.zeros(0, np.bool_)
    found = distinct([values]) if is_label(values.type) else []
    wrong = [value for value in found if value not in (TRAIN, TEST)]
    if wrong or not found:
        has = f"has {wrong[0]!r}" if wrong else f"is of type {values.type}"
        raise InputError(
            f"local_test names the column {column!r}, which {has}: must hold {TRAIN!r} and {TEST!r}, or booleans that "
            "are true for test rows; convert it"
        )
    return np.array([value == TEST for value in values.to_pylist()], np.bool_)


def tests_last(rows: Integers, sizes: Integers, is_test: Flags) -> tuple[Integers, Integers]:
    """Return the rows with each client's test rows behind its others, and the number of test rows per client [K].

    Args:
        rows: row numbers in the source, client after client.
        sizes: rows per client [K].
        is_test: whether each row of the source is a test row [N].
    """
    owners, tests = np.repeat(np.arange(sizes.size), sizes), is_test[rows]
    order = np.lexsort((tests, owners))  # stable: the random order within each part stays
    return rows[order], np.bincount(owners[tests], minlength=sizes.size).astype(np.int64)
