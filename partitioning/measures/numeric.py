"""Numeric columns as flat arrays: scalars, lists of a fixed size, nested ones, and tensors."""

import math
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from partitioning.common.casting import is_number
from partitioning.common.checks import Floats
from partitioning.common.columns import has_nulls, sample_shape
from partitioning.common.errors import InputError

_ROWS = 4096  # rows measured at once


def numeric_columns(schema: pa.Schema, label: str) -> dict[str, int]:
    """Return the columns of numbers or booleans and their numbers per sample, without the label."""
    forms = {field.name: sample_shape(field.type) for field in schema if field.name != label}
    sizes = {
        name: math.prod(shape) for name, (shape, kind) in forms.items() if is_number(kind) or pa.types.is_boolean(kind)
    }
    return {name: size for name, size in sizes.items() if size}


def flatten(array: pa.Array) -> np.ndarray[Any, Any]:
    """Return all numbers of a numeric column, sample after sample; booleans as 0 and 1."""
    if isinstance(array, pa.ExtensionArray):
        return flatten(array.storage)
    if pa.types.is_fixed_size_list(array.type):
        return flatten(array.flatten())
    return np.asarray((array.cast(pa.int8()) if pa.types.is_boolean(array.type) else array).to_numpy())


def unflatten(numbers: Floats, like: pa.Array) -> pa.Array:
    """Return numbers as a column of the type of `like`, the reverse of `flatten`.

    Whole numbers are rounded and clipped to the range of their type. Booleans are true from 1/2.
    """
    if isinstance(like, pa.ExtensionArray):
        return pa.ExtensionArray.from_storage(like.type, unflatten(numbers, like.storage))
    if pa.types.is_fixed_size_list(like.type):
        return pa.FixedSizeListArray.from_arrays(unflatten(numbers, like.flatten()), type=like.type)
    if pa.types.is_boolean(like.type):
        return pa.array(numbers >= 0.5)
    kind = np.dtype(like.type.to_pandas_dtype())
    if kind.kind in "iu":
        limits = np.iinfo(kind)
        numbers = np.clip(np.rint(numbers), limits.min, limits.max)
        # The largest 64-bit number is no float, and the nearest one is out of range.
        return pa.array(np.where(numbers >= limits.max, limits.max, numbers.astype(kind)).astype(kind), type=like.type)
    return pa.array(numbers.astype(kind), type=like.type)


def deviations(batches: Iterable[pa.RecordBatch], label: str) -> dict[str, float]:
    """Return the standard deviation of all numbers of each numeric column, in one pass over the samples.

    Raises:
        InputError: no column is numeric, or one has a value that is missing, NaN or infinite.
    """
    totals: dict[str, tuple[int, float, float]] = {}  # count, mean, and sum of squares around it
    for batch in _in_blocks(batches):
        for name in numeric_columns(batch.schema, label):
            numbers = _known(batch.column(name), name)
            if numbers.size:
                totals[name] = _pooled(totals.get(name, (0, 0.0, 0.0)), numbers)
    if not totals:
        raise InputError("no column is numeric, hence none can have noise: decode images first, or add numbers")
    return {name: math.sqrt(squares / count) for name, (count, _, squares) in totals.items()}


def _known(column: pa.Array, name: str) -> Floats:
    # A single NaN would make the deviation NaN, and with it the whole column.
    numbers = None if has_nulls(column) else flatten(column).astype(np.float64)
    if numbers is None or not np.isfinite(numbers).all():
        raise InputError(
            f"column {name!r} has values that are missing, NaN or infinite, and cannot have noise: fill them in, or "
            "drop those rows"
        )
    return numbers


def _in_blocks(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    # Blocks of `_ROWS` rows, independent of the source's batches, because the order of sums decides the last bits.
    waiting: list[pa.RecordBatch] = []
    missing = _ROWS
    for batch in batches:
        start = 0
        while batch.num_rows - start >= missing:
            yield pa.concat_batches([*waiting, batch.slice(start, missing)])
            start, waiting, missing = start + missing, [], _ROWS
        if start < batch.num_rows:
            waiting.append(batch.slice(start))
            missing -= batch.num_rows - start
    if waiting:
        yield pa.concat_batches(waiting)


def _pooled(total: tuple[int, float, float], numbers: Floats) -> tuple[int, float, float]:
    # Chan et al. 1983: avoids differences of large squares.
    (count, mean, squares), step = total, float(numbers.mean() - total[1])
    both = count + numbers.size
    around = float(((numbers - numbers.mean()) ** 2).sum())
    return both, mean + step * numbers.size / both, squares + around + step**2 * count * numbers.size / both
