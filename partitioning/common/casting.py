"""Columns of one table in the types of another: readers of text and frames infer types for each table alone."""

import pyarrow as pa

from partitioning.common.columns import decoded, value_type


def cast_like(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return the table with its columns in the types of a schema, except those whose values would change.

    Args:
        table: rows with their columns.
        schema: types of columns by name; other columns of the table stay, too.
    """
    for place, field in enumerate(table.schema):
        kind = schema.field(field.name).type if field.name in schema.names else field.type
        if kind != field.type and (values := _cast(table[field.name], kind)) is not None:
            table = table.set_column(place, field.with_type(kind), values)
    return table


def value_without_cast(values: pa.ChunkedArray, kind: pa.DataType) -> object:
    """Return the first value of a column that another type cannot hold."""
    while len(values) > 1:
        half = values[: len(values) // 2]
        values = values[len(half) :] if _cast(half, kind) is not None else half
    return values[0].as_py()


def _means_the_same(given: pa.DataType, wanted: pa.DataType) -> bool:
    """Return whether equal values of two types mean the same.

    A number has several spellings as text, such as 7, 007 and 7.0, and no unit of time.
    """
    if is_text(given) or is_number(given):
        return is_number(wanted) or (is_text(given) and is_text(wanted))
    if _is_day(given) and _is_day(wanted):
        return getattr(given, "tz", None) == getattr(wanted, "tz", None)
    return bool(pa.types.is_duration(given) and pa.types.is_duration(wanted))


def is_text(kind: pa.DataType) -> bool:
    """Return whether a column holds text."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def is_number(kind: pa.DataType) -> bool:
    """Return whether a column holds integers or floats."""
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


def _is_day(kind: pa.DataType) -> bool:
    return bool(pa.types.is_date(kind) or pa.types.is_timestamp(kind))


def _cast(values: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray | None:
    # Return the values in another type; None if one would change.
    import pyarrow.compute as pc  # late, as in `columns`

    if pa.types.is_null(values.type):
        return values.cast(kind)
    values, inner = decoded(values), value_type(kind)
    if not _means_the_same(values.type, inner):
        return None
    try:
        made = values.cast(inner)
        is_same = pc.or_(pc.equal(made.cast(values.type), values), pc.not_equal(values, values))
        return made.cast(kind) if pc.all(is_same).as_py() is not False else None
    except pa.ArrowException:
        return None
