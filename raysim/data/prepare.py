"""A data set's rows before they are partitioned: which of them there are, and FedMMB's augmented copies."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import torch

from algorithms import Augment, Purpose, torch_seed
from partitioning.common.columns import class_codes, distinct
from partitioning.making.arranging import gather_batches
from raysim.common.errors import MAX_NAMES, InputError
from raysim.data.arrays import flat, nested
from raysim.data.augment import chain, check_pixels
from raysim.data.features import Arrays, Features, Images, features
from raysim.data.images import encoded, is_image, paths, pixels, png
from raysim.data.masks import check_classes_of_samples
from raysim.data.sources import Source
from raysim.data.tensors import LARGEST

LOG = logging.getLogger("raysim")

ROWS = 1024
"""Rows that are augmented at once."""

Split = Literal["train", "test", "all"]


def of_split(source: Source, split: Split) -> Source:
    """The data set with the rows of a split to be partitioned; its test set is the global one under "train" alone.

    Args:
        source: with its own test set, or without: then all its rows are its training rows.
        split: "all" pools both, training rows first, as RADFed does.

    Raises:
        InputError: there is no test set whose rows could be partitioned.
    """
    if split == "train":
        return source
    if split == "all":
        tables = [source.train] if source.test is None else [source.train, source.test]
        return replace(source, train=pa.concat_tables(tables), test=None)
    if source.test is None:
        raise InputError(
            f'data.split = "test": must be "train" or "all", for {source.name} has no test set of its own; remove it'
        )
    return replace(source, train=source.test, test=None)


def of_classes(source: Source, classes: Sequence[int | str]) -> Source:
    """The data set with the rows of some classes, their labels as they were.

    Args:
        source: with all rows.
        classes: those that stay.

    Raises:
        InputError: the rows to be partitioned have no such class; those that they have are named.
    """
    check_classes_of_samples(source.train.schema, source.label, "data.classes")
    there = distinct([source.train[source.label]])
    for name in classes:
        # By type, too: True == 1 in Python.
        if not any(name == own and type(name) is type(own) for own in there):
            listed = [str(own) for own in there]
            shown = listed if len(listed) <= MAX_NAMES else [*listed[: MAX_NAMES - 2], "...", listed[-1]]
            raise InputError(f"data.classes has {name!r}: must be among the classes {', '.join(shown)}; name those")
    test = None if source.test is None else only(source.test, source.label, classes)
    if test is not None and not test.num_rows:
        LOG.warning("data.classes leaves the test set of %s no rows: there is none", source.name)
        test = None
    return replace(source, train=only(source.train, source.label, classes), test=test)


def only(table: pa.Table, label: str, classes: Sequence[int | str]) -> pa.Table:
    """The rows of some classes, whether or not there are any."""
    return taken(table, np.flatnonzero(class_codes(table[label], classes) >= 0))


def taken(table: pa.Table, rows: npt.NDArray[np.int64]) -> pa.Table:
    """Some rows of a table, in this order: `Table.take` returns wrong ones of sliced nested lists."""
    return pa.Table.from_batches(gather_batches(table, rows, np.array([rows.size])), table.schema)


def with_copies(
    table: pa.Table,
    label: str,
    dividing: Collection[str],
    names: Sequence[str],
    strengths: Mapping[str, Any],
    seed: int,
) -> pa.Table:
    """The table and after it one augmented copy of each row, in their order: twice as many rows.

    Args:
        table: a column of images; uint8 arrays, floats in [0, 1], or encoded ones, whose copies are PNG.
        label: its column of classes.
        dividing: the columns that are no features; copies have those of their rows.
        names: the augmentations, in their order.
        strengths: what they take, by name.
        seed: the run's.

    Raises:
        InputError: there are no images, or one cannot be decoded, is too small, or is no pixels in [0, 1] where
            colours are changed.

    Paper: FedMMB, section 4 ("the train size is doubled after augmentation").
    """
    check_classes_of_samples(table.schema, label, 'data.augment with "append"')
    form, change = features(table.schema, label, dividing), chain(names, strengths)
    draws = torch.rand(
        table.num_rows, change.numbers, generator=torch.Generator().manual_seed(torch_seed(seed, Purpose.AUGMENT))
    )
    column = _column(table.schema, form)
    place = table.schema.get_field_index(column)
    parts: list[pa.Array] = []
    for start in range(0, table.num_rows, ROWS):
        rows = table[column].slice(start, ROWS).combine_chunks()
        if isinstance(form, Arrays) and pa.types.is_floating(form.values):
            values = torch.tensor(flat(rows).to_numpy(zero_copy_only=False))
            check_pixels(values, names, f"rows {start} to {start + len(rows) - 1} of column {column!r}")
        parts.append(_changed(rows, form, change, draws[start : start + ROWS], start))
    copies = table.set_column(place, table.schema.field(place), pa.chunked_array(parts, table.schema.field(place).type))
    return pa.concat_tables([table, copies])


def _column(schema: pa.Schema, form: Features) -> str:
    """The column of images."""
    if isinstance(form, Images):
        return form.column
    what = "columns of numbers"
    if isinstance(form, Arrays):
        kind = schema.field(form.column).type
        usable = pa.types.is_uint8(form.values) or pa.types.is_floating(form.values)
        if usable and is_image(form.shape) and not isinstance(kind, pa.ExtensionType):
            return form.column
        what = f"column {form.column!r} of {form.values} arrays of shape {form.shape}"
    raise InputError(
        f'data.augment with "append" on {what}: must be on images, uint8 or float arrays [1 or 3, height, width] or '
        "encoded; remove it"
    )


def _changed(rows: pa.Array, form: Features, change: Augment, draws: torch.Tensor, first: int) -> pa.Array:
    """Some rows of a column of images, changed; `first` is the number of the first."""
    if isinstance(form, Arrays):
        # A slice of nested lists may begin anywhere in its memory: `flat` finds where.
        values = flat(rows).to_numpy(zero_copy_only=False).reshape(len(rows), *form.shape)
        return nested(_of_arrays(values, change, draws)).cast(rows.type)
    files = []
    for number, (data, path) in enumerate(zip(encoded(rows), paths(rows), strict=True)):
        image = pixels(data.as_py(), f"the data set's row {first + number}{f' ({path})' if path else ''},")
        files.append(png(_of_arrays(image[None], change, draws[number : number + 1])[0]))
    if not pa.types.is_struct(rows.type):
        return pa.array(files, rows.type)
    names = [field.name for field in rows.type]
    return pa.array([{name: file if name == "bytes" else None for name in names} for file in files], rows.type)


def _of_arrays(values: npt.NDArray[Any], change: Augment, draws: torch.Tensor) -> npt.NDArray[Any]:
    """Images [n, c, h, w] of any type changed, and of the same type again."""
    whole = values.dtype == np.uint8
    x = torch.from_numpy(values.astype(np.float32) / (LARGEST if whole else 1))
    made = change(x, draws).numpy()
    return (np.rint(made * LARGEST) if whole else made).astype(values.dtype)
