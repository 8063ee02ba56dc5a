"""Columns of a table: what may be partitioned, the shape of a sample, and labels as class numbers."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from partitioning.common.checks import Integers
from partitioning.common.errors import InputError, excerpt, listing, suggestion

Label = int | str | bool


@dataclass(frozen=True)
class Column:
    """Name, Arrow type and sample shape of a column; the shape is None if it varies."""

    name: str
    type: str
    shape: tuple[int, ...] | None


def describe(schema: pa.Schema) -> tuple[Column, ...]:
    """Describe every column of a schema in its Arrow file form, which drops some names of inner fields."""
    schema = pa.ipc.read_schema(schema.serialize())
    return tuple(Column(field.name, str(field.type), _fixed_shape(field.type)) for field in schema)


def check_columns(schema: pa.Schema, label: str, *, name: str) -> None:
    """Raise InputError unless the columns have distinct names, usable types, and a usable label."""
    names = schema.names
    if (twice := repeated(names)) is not None:
        raise InputError(f"{name} has several columns named {twice!r}: rename them")
    if label not in names:
        raise InputError(f"{name} has no column {label!r}: its columns are {excerpt(names)}" + suggestion(label, names))
    kind = value_type(schema.field(label).type)
    if pa.types.is_null(kind):
        raise InputError(f"{name} has no rows, or no label in any: give at least one sample")
    if not (is_label(kind) or is_image(kind) or is_numbers(kind)):
        raise InputError(
            f"the label column {label!r} of {name} is of type {kind}: "
            "cast it to whole numbers, strings, floats, or lists of a fixed size, give images, or name another column"
        )
    for field in schema:
        if not _can_be_taken(field.type):
            raise InputError(
                f"column {field.name!r} of {name} is of type {field.type}, and Arrow cannot select rows of it: "
                "cast it to a plain type, as string_view to string"
            )


def repeated(names: Iterable[str]) -> str | None:
    """Return the first name that stood before; None if all are distinct."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    return None


def check_rows(table: pa.Table, *, name: str) -> None:
    """Raise InputError for a table without rows."""
    if table.num_rows == 0:
        raise InputError(f"{name} has no rows: give at least one sample")


def check_text(rows: pa.Table | pa.RecordBatch, *, name: str, first: int = 0, is_text: bool = False) -> None:
    """Raise InputError if a text is not UTF-8; Arrow itself checks it only in some files.

    Args:
        rows: columns of any types; dictionaries of texts count, and texts inside structs and lists.
        name: name of the source, for the message.
        first: number of the first row.
        is_text: whether columns of bytes hold texts, too, as those of delimited text.
    """
    for field, column in zip(rows.schema, rows.columns, strict=True):
        kind, start = value_type(field.type), first
        chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
        if pa.types.is_nested(kind):
            _check_nested(chunks, f"{name}: column {field.name!r}")
        texts = pa.types.is_string(kind) or pa.types.is_large_string(kind)
        if not (texts or (is_text and pa.types.is_binary(kind))):
            continue
        for chunk in chunks:
            values = chunk.dictionary if isinstance(chunk, pa.DictionaryArray) else chunk
            raw = values.cast(pa.large_binary())
            try:
                raw.cast(pa.large_string())
            except pa.ArrowInvalid:
                place, error = next(filter(None, map(_undecodable, range(len(raw)), raw.to_pylist())))
                is_code = values is not chunk
                row = chunk.indices.index(place).as_py() if is_code else place
                where = f"row {start + row}" if row >= 0 else f"value {place} of the dictionary"
                raise InputError(
                    f"{name}: column {field.name!r}, {where}, has byte {error.object[error.start]:#x}: must be text in "
                    "UTF-8; read the table in its own encoding, often Latin-1, and save it in UTF-8"
                ) from None
            start += len(chunk)


def _check_nested(chunks: Iterable[pa.Array], where: str) -> None:
    try:
        for chunk in chunks:
            chunk.validate(full=True)
    except pa.ArrowInvalid as error:
        raise InputError(
            f"{where} has a value that is damaged, or no text in UTF-8 ({error}): write it again"
        ) from error


def _undecodable(place: int, value: bytes | None) -> tuple[int, UnicodeDecodeError] | None:
    """Return the place of a text and its error; None for UTF-8."""
    try:
        (value or b"").decode()
    except UnicodeDecodeError as error:
        return place, error
    return None


def check_values(rows: pa.Table | pa.RecordBatch, *, name: str, first: int = 0, missing: Collection[str] = ()) -> None:
    """Raise InputError if a text is not UTF-8 (see `check_text`), or a column outside `missing` lacks a value."""
    check_text(rows, name=name, first=first)
    lacking = []
    for field, column in zip(rows.schema, rows.columns, strict=True):
        chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
        if field.name not in missing and any(has_nulls(chunk) for chunk in chunks):
            lacking.append(field.name)
    if lacking:
        where = f"column {lacking[0]!r}" if len(lacking) == 1 else f"the columns {listing(lacking)}"
        raise InputError(
            f"{name} has missing values in {where}: fill them or drop those rows; features may keep them if they are "
            "named as `missing`"
        )


def distinct(columns: Iterable[pa.ChunkedArray | pa.Array]) -> list[Label]:
    """Return the sorted distinct values of label columns; class c is the c-th value."""
    import pyarrow.compute as pc  # late: it takes longer to import than pyarrow itself

    values: set[Label] = set()
    for column in columns:
        values.update(pc.unique(decoded(column)).to_pylist())
    return sorted(values)


def class_codes(column: pa.ChunkedArray | pa.Array, classes: Iterable[Label]) -> Integers:
    """Return the class number of each label [N]; -1 for a label outside the classes."""
    import pyarrow.compute as pc

    plain = decoded(column)
    try:
        known = pa.array(list(classes), type=plain.type)
    except (pa.ArrowException, OverflowError, TypeError) as error:
        raise InputError(f"the classes are not of the label's type, {plain.type} ({error}): correct them") from error
    codes = pc.fill_null(pc.index_in(plain, value_set=known), -1)
    return np.asarray(codes.to_numpy(), dtype=np.int64)


def is_label(kind: pa.DataType) -> bool:
    """Return whether values of a type may be labels: whole numbers, booleans, strings, or a dictionary of them."""
    kind = value_type(kind)
    tests = (pa.types.is_integer, pa.types.is_boolean, pa.types.is_string, pa.types.is_large_string)
    return any(test(kind) for test in tests)


def is_image(kind: pa.DataType) -> bool:
    """Return whether labels of a type are images: encoded ones, or whole numbers of shape [height, width]."""
    shape, inner = sample_shape(kind)
    return is_encoded(kind) or (len(shape) == 2 and bool(pa.types.is_integer(inner)))


def is_encoded(kind: pa.DataType) -> bool:
    """Return whether a column holds encoded images: their bytes, alone or beside a path."""
    if pa.types.is_struct(kind) and kind.get_field_index("bytes") >= 0:
        kind = kind.field("bytes").type
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def is_numbers(kind: pa.DataType) -> bool:
    """Return whether labels of a type are numbers: a float, or a list of a fixed size with numbers or booleans."""
    shape, inner = sample_shape(kind)
    tests = (pa.types.is_integer, pa.types.is_boolean) if shape else ()
    return len(shape) < 2 and bool(pa.types.is_floating(inner) or any(test(inner) for test in tests))


def labels_of(rows: pa.Table | pa.RecordBatch, label: str) -> pa.ChunkedArray | pa.Array:
    """Return the class of each row: its label, or the column's name if labels are images or numbers."""
    column = rows.column(label)
    return column if is_label(column.type) else pa.repeat(label, len(column))


def decoded(column: pa.ChunkedArray | pa.Array) -> pa.ChunkedArray | pa.Array:
    """Return a column without a dictionary."""
    return column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column


def value_type(kind: pa.DataType) -> pa.DataType:
    """Return the type of a column's values, whether they stand in a dictionary or not."""
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def shape_of(kind: pa.DataType) -> tuple[tuple[int, ...], pa.DataType]:
    """Return the shape of nested fixed-size lists, and the type of their values."""
    shape: tuple[int, ...] = ()
    while pa.types.is_fixed_size_list(kind):
        shape, kind = (*shape, kind.list_size), kind.value_type
    return shape, kind


def sample_shape(kind: pa.DataType) -> tuple[tuple[int, ...], pa.DataType]:
    """Return the shape of a sample in nested fixed-size lists, a tensor or both, and the type of its values."""
    shape, inner = shape_of(kind)
    return ((*shape, *inner.shape), inner.value_type) if isinstance(inner, pa.FixedShapeTensorType) else (shape, inner)


def _fixed_shape(kind: pa.DataType) -> tuple[int, ...] | None:
    shape, inner = sample_shape(kind)
    varies = pa.types.is_list(inner) or pa.types.is_large_list(inner) or pa.types.is_map(inner)
    return None if varies else shape


def _can_be_taken(kind: pa.DataType) -> bool:
    try:
        pa.nulls(0, kind).take(pa.array([], pa.int64()))
    except pa.ArrowNotImplementedError:
        return False
    return True


def has_nulls(array: pa.Array) -> bool:
    """Return whether a value is missing, also inside lists."""
    # Fields of a struct may be null: public hubs store an encoded image as {bytes, path} without a path.
    if isinstance(array, pa.ExtensionArray):
        return has_nulls(array.storage)
    if array.null_count:
        return True
    kind = array.type
    if pa.types.is_dictionary(kind):
        return bool(array.dictionary.null_count) and bool(array.dictionary_decode().null_count)
    if pa.types.is_fixed_size_list(kind) or pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return has_nulls(array.flatten())
    return False
