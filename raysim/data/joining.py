"""Several tables as one, of which each is a domain."""

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from raysim.common.errors import InputError
from raysim.data.arrays import flat
from raysim.data.features import Arrays, Images, features
from raysim.data.folders import ENCODED, Tables
from raysim.data.images import is_image, png

DOMAIN = "domain"
"""The column that names a row's domain."""


def join(parts: Mapping[str, Tables], label: str, dividing: Sequence[str] = ()) -> Tables:
    """Join data sets with the same columns, one after the other; a column `domain` has their names.

    Images that are arrays become PNG where the data sets differ in size or colour, or some hold encoded ones.

    Args:
        parts: the train and test table of each domain.
        label: the column of classes.
        dividing: columns that say whose a row is.

    Raises:
        InputError: the columns or the labels do not go together, or only some have a test table.
    """
    lacking = [name for name, (_, test) in parts.items() if test is None]
    if 0 < len(lacking) < len(parts):
        raise InputError(f"{lacking[0]} has no test part, and others have one: give all of them one, or none")
    trains = {name: train for name, (train, _) in parts.items()}
    tests = {name: test for name, (_, test) in parts.items() if test is not None}
    if len({_plain(table.schema.field(label).type) for table in trains.values()}) > 1:
        listed = ", ".join(f"{name} ({table.schema.field(label).type})" for name, table in trains.items())
        raise InputError(
            f"the labels of {listed} are of several kinds: give all whole numbers, all strings, or masks of one type"
        )
    encode = len({_form(table.schema, label, dividing) for table in trains.values()}) > 1
    train = _joined(trains, label, dividing, encode=encode)
    return train, _joined(tests, label, dividing, encode=encode) if tests else None


def _form(schema: pa.Schema, label: str, dividing: Sequence[str]) -> str:
    form = features(schema, label, dividing)
    return f"{form}" if isinstance(form, Arrays) else type(form).__name__


def _joined(tables: Mapping[str, pa.Table], label: str, dividing: Sequence[str], *, encode: bool) -> pa.Table:
    first = next(iter(tables))
    made = [_alike(table, name, label, dividing, encode=encode) for name, table in tables.items()]
    schema = made[0].schema
    for name, table in zip(tables, made, strict=True):
        if table.schema.names != schema.names or table.schema.types != schema.types:
            raise InputError(
                f"{name} has the columns {_columns(table.schema)} where {first} has {_columns(schema)}: "
                "give all the same names and types, in the same order"
            )
    # Equal types may still name a list's inner field differently: Parquet says "element", memory "item".
    return pa.concat_tables([table.cast(schema) for table in made])


def _alike(table: pa.Table, name: str, label: str, dividing: Sequence[str], *, encode: bool) -> pa.Table:
    if DOMAIN in table.schema.names:
        raise InputError(f"{name} has a column {DOMAIN!r} of its own: give it alone, or rename the column")
    try:
        plain = _put(table, label, table[label].cast(_plain(table.schema.field(label).type)))
    except pa.ArrowException as error:
        raise InputError(f"the labels of {name} do not fit int64 ({error}): give smaller ones") from error
    alike = _encoded(plain, label, dividing, name) if encode else plain
    return alike.append_column(DOMAIN, pa.array([name] * table.num_rows, pa.string()))


def _plain(kind: pa.DataType) -> pa.DataType:
    """The one type that labels of this kind become: whole numbers of any width int64, words string."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if pa.types.is_integer(kind):
        return pa.int64()
    return pa.string() if pa.types.is_large_string(kind) else kind


def _encoded(table: pa.Table, label: str, dividing: Sequence[str], name: str) -> pa.Table:
    form = features(table.schema, label, dividing)
    if isinstance(form, Images):
        return _put(table, form.column, _as_struct(table[form.column]))
    if not isinstance(form, Arrays) or not is_image(form.shape):
        raise InputError(f"{name} holds no images, and others do or differ: give data sets of one kind")
    images = image_array(table[form.column], form.shape)
    contents = pa.array([png(image) for image in images], pa.binary())
    paths = pa.nulls(len(contents), pa.string())
    return _put(table, form.column, pa.StructArray.from_arrays([contents, paths], fields=list(ENCODED)))


def image_array(column: pa.ChunkedArray, shape: Sequence[int]) -> npt.NDArray[np.uint8]:
    """Return a column of images as uint8 [n, channels, height, width]; floats in [0, 1] are rounded to 255 steps.

    Raises:
        InputError: a value is not in the range of an image's.
    """
    values = np.concatenate([flat(chunk).to_numpy(zero_copy_only=False) for chunk in column.chunks])
    images = values.reshape(-1, *shape)
    if np.issubdtype(images.dtype, np.floating):
        images = images * 255
    if images.dtype != np.uint8:
        if images.size and not (images.min() >= 0 and images.max() <= 255):
            raise InputError("the images have values beyond black and white: scale floats to [0, 1], or give uint8")
        images = np.rint(images).astype(np.uint8)
    return images


def _as_struct(column: pa.ChunkedArray) -> pa.ChunkedArray:
    contents = pc.struct_field(column, "bytes") if pa.types.is_struct(column.type) else column
    chunks = [
        pa.StructArray.from_arrays([chunk.cast(pa.binary()), pa.nulls(len(chunk), pa.string())], fields=list(ENCODED))
        for chunk in contents.chunks
    ]
    return pa.chunked_array(chunks, ENCODED)


def _put(table: pa.Table, name: str, values: pa.Array | pa.ChunkedArray) -> pa.Table:
    return table.set_column(table.schema.get_field_index(name), name, values)


def _columns(schema: pa.Schema) -> str:
    listed = [f"{field.name} ({field.type})" for field in schema]
    return ", ".join(listed if len(listed) <= 8 else [*listed[:8], "..."])
