"""Values of nested Arrow arrays, without a copy, and rows of a table."""

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from partitioning.making.arranging import gather_batches


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


def take_rows(table: pa.Table, rows: npt.NDArray[np.int64]) -> pa.Table:
    """Return the given rows of a table, in the given order.

    `Table.take` would return wrong rows of sliced nested lists.
    """
    return pa.Table.from_batches(gather_batches(table, rows, np.array([rows.size])), table.schema)
