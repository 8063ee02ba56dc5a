"""Domains: several tables joined into one, and the rows of each domain."""

from collections.abc import Mapping, Sequence
from contextlib import suppress

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from algorithms import Purpose, generator
from partitioning.common.casting import cast_like
from partitioning.common.columns import value_type
from partitioning.sources.memory import Tables
from partitioning.sources.source import difference
from raysim.common.errors import InputError
from raysim.data.arrays import flat, take_rows
from raysim.data.columns import PLAIN, ColumnRules
from raysim.data.features import ArrayColumn, ImageColumn, features
from raysim.data.folders import ENCODED
from raysim.data.images import encoded, is_image, png
from raysim.data.targets import stated_classes

DOMAIN = "domain"
"""Column that names a row's domain."""


def join(parts: Mapping[str, Tables], label: str, dividing: Sequence[str] = (), rules: ColumnRules = PLAIN) -> Tables:
    """Join data sets with the same columns end to end; a new column `domain` has their names.

    The columns get the order of the first data set, and whole numbers become floats if another one has fractions.
    Images in arrays become PNG if the data sets differ in size or colour, or some hold encoded images.

    Args:
        parts: train and test table of each domain.
        label: column of classes.
        dividing: columns that identify a row's owner.
        rules: rules for columns that are no plain numbers.

    Raises:
        InputError: the columns or the labels do not match, or only some data sets have a test table.
    """
    lacking = [name for name, (_, test) in parts.items() if test is None]
    if 0 < len(lacking) < len(parts):
        raise InputError(f"{lacking[0]} has no test part, and others have one: give all of them one, or none")
    trains = {name: train for name, (train, _) in parts.items()}
    tests = {name: test for name, (_, test) in parts.items() if test is not None}
    if len({_common_label_type(table.schema.field(label).type) for table in trains.values()}) > 1:
        listed = ", ".join(f"{name} ({table.schema.field(label).type})" for name, table in trains.items())
        raise InputError(
            f"the labels of {listed} are of several kinds: give all whole numbers, all strings, or masks of one type"
        )
    forms = {_feature_form(rules.as_numbers(table.schema), label, dividing) for table in trains.values()}
    encode = len(forms) > 1
    train = _joined(trains, label, dividing, encode=encode)
    return train, _joined(tests, label, dividing, encode=encode) if tests else None


def split_by_domain(table: pa.Table, column: str) -> Mapping[str, pa.Table]:
    """Return the rows of each domain that a column names."""
    names = sorted(pc.unique(table[column]).to_pylist(), key=str)
    values = np.asarray(table[column].to_pylist())
    return {str(name): take_rows(table, np.flatnonzero(values == name)) for name in names}


def draw_per_domain(table: pa.Table, column: str, count: int, seed: int) -> pa.Table:
    """Draw `count` rows of each domain without replacement; the rows keep the table's order.

    Args:
        table: rows of all domains.
        column: column that names a row's domain.
        count: rows of each domain.
        seed: key of the draws.

    Raises:
        InputError: a domain has fewer rows.
    """
    values = np.asarray(table[column].to_pylist())
    chosen = []
    for number, name in enumerate(np.unique(values)):
        rows = np.flatnonzero(values == name)
        if len(rows) < count:
            raise InputError(
                f"data.per_domain = {count}: must be at most {len(rows)}, because domain {name} has no more rows to "
                "train on; lower it"
            )
        chosen.append(generator(seed, Purpose.DOMAIN_ROWS, number).permutation(rows)[:count])
    return take_rows(table, np.sort(np.concatenate(chosen)))


def image_array(column: pa.ChunkedArray, shape: Sequence[int]) -> npt.NDArray[np.uint8]:
    """Return a column of images as uint8 [n, channels, height, width]; floats in [0, 1] are rounded to 255 steps.

    Raises:
        InputError: a value is outside the range of pixels.
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


def _feature_form(schema: pa.Schema, label: str, dividing: Sequence[str]) -> str:
    form = features(schema, label, dividing)
    return f"{form}" if isinstance(form, ArrayColumn) else type(form).__name__


def _joined(tables: Mapping[str, pa.Table], label: str, dividing: Sequence[str], *, encode: bool) -> pa.Table:
    first = next(iter(tables))
    made = [_as_domain(table, name, label, dividing, encode=encode) for name, table in tables.items()]
    names = made[0].schema.names
    made = _widened([table.select(names) if {*table.schema.names} == {*names} else table for table in made])
    schema, place = made[0].schema, names.index(label)
    schema = schema.set(place, max((table.schema.field(label) for table in made), key=lambda f: stated_classes(f) or 0))
    for name, table in zip(tables, made, strict=True):
        if table.schema.names != schema.names or table.schema.types != schema.types:
            raise InputError(
                f"{name} {difference(table.schema, schema)}, unlike {first}: give all the same names, with values of "
                "the same types"
            )
    # Equal types may still name a list's inner field differently: Parquet says "element", memory "item".
    return pa.concat_tables([table.cast(schema) for table in made])


def _widened(tables: Sequence[pa.Table]) -> list[pa.Table]:
    """Return tables with columns of a common type if their types are numbers, or if one has no value."""
    kinds: dict[str, pa.Field] = {}
    for field in (field for table in tables for field in table.schema):
        known = kinds.setdefault(field.name, field)
        if known.type != field.type:
            with suppress(pa.ArrowException):  # the caller reports types that do not go together
                (kinds[field.name],) = pa.unify_schemas(
                    [pa.schema([known]), pa.schema([field])], promote_options="permissive"
                )
    return [cast_like(table, pa.schema(list(kinds.values()))) for table in tables]


def _as_domain(table: pa.Table, name: str, label: str, dividing: Sequence[str], *, encode: bool) -> pa.Table:
    """Return a table with labels of a common type, images encoded if `encode`, and its name in the column `domain`."""
    if DOMAIN in table.schema.names:
        raise InputError(f"{name} has a column {DOMAIN!r} of its own: give it alone, or rename the column")
    try:
        table = _put(table, label, table[label].cast(_common_label_type(table.schema.field(label).type)))
    except pa.ArrowException as error:
        raise InputError(f"the labels of {name} do not fit int64 ({error}): give smaller ones") from error
    table = _with_encoded_images(table, label, dividing, name) if encode else table
    return table.append_column(DOMAIN, pa.array([name] * table.num_rows, pa.string()))


def _common_label_type(kind: pa.DataType) -> pa.DataType:
    """Return the type that labels are cast to: int64 for whole numbers of any width, string for strings."""
    kind = value_type(kind)
    if pa.types.is_integer(kind):
        return pa.int64()
    return pa.string() if pa.types.is_large_string(kind) else kind


def _with_encoded_images(table: pa.Table, label: str, dividing: Sequence[str], name: str) -> pa.Table:
    form = features(table.schema, label, dividing)
    if isinstance(form, ImageColumn):
        contents = [encoded(chunk).cast(pa.binary()) for chunk in table[form.column].chunks]
    elif isinstance(form, ArrayColumn) and is_image(form.shape):
        contents = [pa.array([png(image) for image in image_array(table[form.column], form.shape)], pa.binary())]
    else:
        raise InputError(f"{name} holds no images, and others do or differ: give data sets of one kind")
    chunks = [
        pa.StructArray.from_arrays([chunk, pa.nulls(len(chunk), pa.string())], fields=list(ENCODED))
        for chunk in contents
    ]
    return _put(table, form.column, pa.chunked_array(chunks, ENCODED))


def _put(table: pa.Table, name: str, values: pa.ChunkedArray) -> pa.Table:
    place = table.schema.get_field_index(name)
    return table.set_column(place, table.schema.field(place).with_type(values.type), values)
