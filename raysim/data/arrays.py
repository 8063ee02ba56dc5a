"""Nested fixed-size Arrow arrays from NumPy arrays and back, without a copy."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa


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
    """Return the innermost values of an array without nulls; a sliced array gives those of its slice.

    Args:
        array: nested fixed-size lists, fixed-shape tensors, or plain values.
    """
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    while pa.types.is_fixed_size_list(array.type):
        array = array.flatten()
    return array


def has_nulls(array: pa.Array) -> bool:
    """Say whether a null is in the array, or in the lists it nests."""
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    while pa.types.is_fixed_size_list(array.type):
        if array.null_count:
            return True
        array = array.flatten()
    return bool(array.null_count)
