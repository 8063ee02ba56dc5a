"""Columns of a table: what may be partitioned, the shape of a sample, and labels as class numbers."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from partitioning.common.checks import Integers
from partitioning.common.errors import InputError, listing, suggestion

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
    return tuple(Column(field.name, str(field.type), _shape(field.type)) for field in schema)


def check_table(table: pa.Table, label: str, *, name: str, missing: Collection[str] = ()) -> None:
    """Raise InputError unless `table` has rows, nulls only in `missing`, and columns that pass `check_columns`."""
    check_columns(table.schema, label, name=name)
    check_rows(table, name=name)
    check_values(table, name=name, missing=missing)


def check_columns(schema: pa.Schema, label: str, *, name: str) -> None:
    """Raise InputError unless the columns have distinct names, usable types, and a usable label."""
    names = schema.names
    if (twice := repeated(names)) is not None:
        raise InputError(f"{name} has several columns named {twice!r}: rename them")
    if label not in names:
        raise InputError(f"{name} has no column {label!r}: its columns are {listing(names)}" + suggestion(label, names))
    kind = _value_type(schema.field(label).type)
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
        kind, start = _value_type(field.type), first
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
    """Raise InputError if a value is missing, or a text is not UTF-8.

    Args:
        rows: columns of any types.
        name: name of the source, for the message.
        first: number of the first row.
        missing: columns that may have missing values.
    """
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
        values.update(pc.unique(_decoded(column)).to_pylist())
    return sorted(values)


def class_codes(column: pa.ChunkedArray | pa.Array, classes: Iterable[Label]) -> Integers:
    """Return the class number of each label [N]; -1 for a label outside the classes."""
    import pyarrow.compute as pc

    decoded = _decoded(column)
    try:
        known = pa.array(list(classes), type=decoded.type)
    except (pa.ArrowException, OverflowError, TypeError) as error:
        raise InputError(f"the classes are not of the label's type, {decoded.type} ({error}): correct them") from error
    codes = pc.fill_null(pc.index_in(decoded, value_set=known), -1)
    return np.asarray(codes.to_numpy(), dtype=np.int64)


def is_label(kind: pa.DataType) -> bool:
    """Return whether values of a type may be labels: whole numbers, booleans, strings, or a dictionary of them."""
    kind = _value_type(kind)
    tests = (pa.types.is_integer, pa.types.is_boolean, pa.types.is_string, pa.types.is_large_string)
    return any(test(kind) for test in tests)


def is_image(kind: pa.DataType) -> bool:
    """Return whether labels of a type are images: encoded ones, or whole numbers of shape [height, width]."""
    if pa.types.is_struct(kind) and kind.get_field_index("bytes") >= 0:
        kind = kind.field("bytes").type
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return True
    return len(_shape(kind) or ()) == 2 and bool(pa.types.is_integer(_innermost(kind)))


def is_numbers(kind: pa.DataType) -> bool:
    """Return whether labels of a type are numbers: a float, or a list of a fixed size with numbers or booleans."""
    shape, inner = _shape(kind), _innermost(kind)
    tests = (pa.types.is_integer, pa.types.is_boolean) if shape else ()
    return len(shape or ()) < 2 and bool(pa.types.is_floating(inner) or any(test(inner) for test in tests))


def labels_of(rows: pa.Table | pa.RecordBatch, label: str) -> pa.ChunkedArray | pa.Array:
    """Return the class of each row: its label, or the column's name if labels are images or numbers."""
    column = rows.column(label)
    return column if is_label(column.type) else pa.repeat(label, len(column))


def _innermost(kind: pa.DataType) -> pa.DataType:
    if isinstance(kind, pa.FixedShapeTensorType):
        return kind.value_type
    return _innermost(kind.value_type) if pa.types.is_fixed_size_list(kind) else kind


def _decoded(column: pa.ChunkedArray | pa.Array) -> pa.ChunkedArray | pa.Array:
    return column.cast(_value_type(column.type))


def _value_type(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _shape(kind: pa.DataType) -> tuple[int, ...] | None:
    if isinstance(kind, pa.FixedShapeTensorType):
        return tuple(kind.shape)
    if pa.types.is_fixed_size_list(kind):
        inner = _shape(kind.value_type)
        return None if inner is None else (kind.list_size, *inner)
    varies = pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_map(kind)
    return None if varies else ()


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
