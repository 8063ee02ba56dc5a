"""Features of a table: columns of numbers, one column of arrays, or one of encoded images."""

import math
from collections.abc import Collection
from dataclasses import dataclass
from typing import TypeAlias

import pyarrow as pa

from partitioning.common.columns import is_encoded, is_label, is_numbers, shape_of
from partitioning.common.columns import is_image as is_image_label
from raysim.common.errors import InputError, unknown
from raysim.data.images import is_image

LABEL = "label"
"""Default name of the label column."""


@dataclass(frozen=True)
class NumberColumns:
    """Columns of one number a sample; together, in their order, they are its feature vector."""

    columns: tuple[str, ...]


@dataclass(frozen=True)
class ArrayColumn:
    """One column of arrays of one shape: nested fixed-size lists, or Arrow's fixed-shape tensor."""

    column: str
    shape: tuple[int, ...]
    values: pa.DataType


@dataclass(frozen=True)
class ImageColumn:
    """One column of encoded images: struct<bytes: binary, path: string>, or plain binary."""

    column: str


Features: TypeAlias = NumberColumns | ArrayColumn | ImageColumn

ALLOWED = "columns of numbers, one column of fixed-size arrays, or one column of encoded images"


def features(schema: pa.Schema, label: str, dividing: Collection[str] = ()) -> Features:
    """Return the form of the columns that a model sees.

    Args:
        schema: columns of the table.
        label: label column.
        dividing: columns that identify a row's owner; neither they nor the label are features.

    Raises:
        InputError: there are no features, a column's type cannot be one, or columns do not match each other or the
            label.
    """
    columns = [field for field in schema if field.name != label and field.name not in dividing]
    if not columns:
        raise InputError(f"the table has no column but the label {label!r}: add {ALLOWED}")
    forms = [form_of(field) for field in columns]
    _check_image_label(schema, label, forms[0])
    if all(isinstance(form, NumberColumns) for form in forms):
        return NumberColumns(tuple(field.name for field in columns))
    if len(forms) > 1:
        listed = ", ".join(f"{field.name!r} ({_short(field.type)})" for field in columns[:4])
        more = ", ..." if len(columns) > 4 else ""
        raise InputError(f"the columns {listed}{more} do not go together: keep {ALLOWED}, and drop the others")
    return forms[0]


def _check_image_label(schema: pa.Schema, label: str, form: Features) -> None:
    """Refuse labels that are images if the features are not images."""
    shown = isinstance(form, ImageColumn) or (isinstance(form, ArrayColumn) and is_image(form.shape))
    if label in schema.names and is_image_label(schema.field(label).type) and not shown:
        raise InputError(
            f"label column {label!r} is {_short(schema.field(label).type)}, but must hold whole numbers or strings "
            "unless features are images, encoded or arrays [1 or 3, height, width]: name the classes"
        )


def check_label(schema: pa.Schema, label: str, where: str) -> None:
    """Check that the label column exists and holds whole numbers, booleans, strings, images or numbers.

    Args:
        schema: columns of the table.
        label: name of the label column.
        where: name of the table, for the error message.

    Raises:
        InputError: it does not.
    """
    if label not in schema.names:
        raise unknown(f"label column data.label = {label!r} of {where}", label, schema.names)
    kind = schema.field(label).type
    if not (is_label(kind) or is_image_label(kind) or is_numbers(kind)):
        raise InputError(
            f"label column {label!r} is {_short(kind)}, but must hold whole numbers, strings, floats or lists of a "
            "fixed size: name the classes, or convert it"
        )


def is_number(kind: pa.DataType) -> bool:
    """Say whether a column of this type can be a feature unchanged: integers, floats and booleans."""
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind))


def form_of(field: pa.Field) -> Features:
    """Return the form of one column; raise an InputError if its type cannot be a feature."""
    if is_number(field.type):
        return NumberColumns((field.name,))
    if is_encoded(field.type):
        return ImageColumn(field.name)
    shape, values = _array(field.type)
    if shape and is_number(values):
        if math.prod(shape) == 0:
            raise InputError(f"column {field.name!r} has arrays of shape {shape}, without a value: drop the column")
        return ArrayColumn(field.name, shape, values)
    raise InputError(_refusal(field))


def _array(kind: pa.DataType) -> tuple[tuple[int, ...], pa.DataType]:
    if isinstance(kind, pa.FixedShapeTensorType):
        # With a permutation, the logical shape would differ from the stored one.
        permuted = kind.permutation is not None and list(kind.permutation) != sorted(kind.permutation)
        return ((), kind) if permuted else (tuple(kind.shape), kind.value_type)
    return shape_of(kind)


def _refusal(field: pa.Field) -> str:
    name, kind = field.name, field.type
    what = f"column {name!r} is {_short(kind)}, which is not a feature"
    if pa.types.is_dictionary(kind) or pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return (
            f"{what}: name it in data.columns.categories, leave it out by data.without = [{name!r}], or name it in "
            "[data.text] if it is text"
        )
    innermost = _array(kind)[1]
    if pa.types.is_list(innermost) or pa.types.is_large_list(innermost):
        return f"{what}, because its lists may vary in length: cast it to pa.list_(pa.float32(), LENGTH)"
    if isinstance(kind, pa.FixedShapeTensorType):
        return f"{what}, because it is permuted or holds no numbers: store it unpermuted, as numbers"
    return f"{what}: allowed are {ALLOWED}; drop the column, or convert it"


def _short(kind: pa.DataType) -> str:
    if pa.types.is_dictionary(kind):
        return f"a dictionary of {kind.value_type}"
    text = " ".join(str(kind).split())
    return text if len(text) <= 60 else f"{text[:57]}..."
