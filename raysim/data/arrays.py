"""Nested Arrow arrays from NumPy arrays and back, without a copy, and rows of a table."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from partitioning.making.arranging import gather_batches


def nested(values: npt.NDArray[Any]) -> pa.FixedSizeListArray:
    """Return an Arrow array of nested fixed-size lists over the memory of `values`.

    Args:
        values: [n, *shape], C-contiguous (others are copied).
    """
    array = pa.array(np.ascontiguousarray(values).reshape(-1))
    for size in reversed(values.shape[1:]):
        array = pa.FixedSizeListArray.from_arrays(array, size)
    return array


def flat(array: pa.Array) -> pa.Array:
    """Return the innermost values of an array without nulls; for a sliced array, those of its slice.

    Args:
        array: nested fixed-size lists, fixed-shape tensors, or plain values.
    """
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    while pa.types.is_fixed_size_list(array.type):
        array = array.flatten()
    return array


def has_nulls(array: pa.Array) -> bool:
    """Say whether the array, or a list nested in it, has a null."""
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    while pa.types.is_fixed_size_list(array.type):
        if array.null_count:
            return True
        array = array.flatten()
    return bool(array.null_count)


def take_rows(table: pa.Table, rows: npt.NDArray[np.int64]) -> pa.Table:
    """Return the given rows of a table, in the given order.

    `Table.take` would return wrong rows of sliced nested lists.
    """
    return pa.Table.from_batches(gather_batches(table, rows, np.array([rows.size])), table.schema)
