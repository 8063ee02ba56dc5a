"""Layout of columns of arrays: lists of one length as fixed-size lists, images with their channels first."""

import pyarrow as pa
import pyarrow.compute as pc

from partitioning.common.columns import has_nulls, shape_of
from partitioning.sources.arrays import nested

CHANNELS = (1, 3)
"""Numbers of channels of an image."""


def arranged(table: pa.Table, label: str) -> pa.Table:
    """Return a table whose columns of arrays have a layout that models read; values and other columns stay.

    Lists become fixed-size lists if all have one length. Arrays [height, width] of uint8, and arrays [height, width,
    1 or 3] of uint8 or floats, are images and become [channels, height, width].

    Args:
        table: rows without missing values; columns with some stay.
        label: label column, whose arrays are masks and stay [height, width].
    """
    for place, (field, column) in enumerate(zip(table.schema, table.columns, strict=True)):
        if any(has_nulls(chunk) for chunk in column.chunks):
            continue
        fixed = _fixed_column(column)
        made = fixed if field.name == label else _channels_first(fixed)
        if made is not column:
            table = table.set_column(place, field.with_type(made.type), made)
    return table


def _fixed_column(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a column with fixed-size lists; the column itself if there is nothing to change, or lengths differ."""
    kind = column.type
    is_foreign = isinstance(kind, pa.BaseExtensionType) and not isinstance(kind, pa.FixedShapeTensorType)
    storage = kind.storage_type if is_foreign else kind
    inner = shape_of(storage)[1]
    if not (pa.types.is_list(inner) or pa.types.is_large_list(inner)):
        return column
    chunks = [_fixed(chunk.storage if is_foreign else chunk) for chunk in column.chunks if len(chunk)]
    if not chunks or any(chunk.type != chunks[0].type for chunk in chunks) or chunks[0].type == kind:
        return column
    return pa.chunked_array(chunks, chunks[0].type)


def _fixed(array: pa.Array) -> pa.Array:
    kind = array.type
    if pa.types.is_fixed_size_list(kind):
        return pa.FixedSizeListArray.from_arrays(_fixed(array.flatten()), kind.list_size)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        lengths = pc.min_max(pc.list_value_length(array)).as_py()
        if lengths["min"] == lengths["max"] and lengths["min"]:
            return pa.FixedSizeListArray.from_arrays(_fixed(array.flatten()), lengths["min"])
    return array


def _channels_first(column: pa.ChunkedArray) -> pa.ChunkedArray:
    shape, kind = shape_of(column.type)
    is_byte = pa.types.is_uint8(kind)
    if is_byte and len(shape) == 2:
        shape = (*shape, 1)
    elif not (is_byte or pa.types.is_floating(kind)) or len(shape) != 3 or shape[0] in CHANNELS:
        return column
    if shape[2] not in CHANNELS:
        return column
    chunks = [_moved(chunk, shape) for chunk in column.chunks]
    moved = pa.list_(pa.list_(pa.list_(kind, shape[1]), shape[0]), shape[2])
    return pa.chunked_array([chunk.cast(moved) for chunk in chunks], moved)


def _moved(array: pa.Array, shape: tuple[int, ...]) -> pa.Array:
    values = array.flatten(recursive=True).to_numpy(zero_copy_only=False).reshape(len(array), *shape)
    return nested(values.transpose(0, 3, 1, 2))
