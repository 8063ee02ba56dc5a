"""Rows of a data set before the partition: a split, some classes, and FedMMB's augmented copies."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import torch

from algorithms import Augment, Purpose, generator, torch_seed
from partitioning.common.columns import class_codes, distinct
from partitioning.sources.arrays import nested
from partitioning.sources.memory import Tables
from raysim.common.errors import MAX_NAMES, InputError
from raysim.common.log import LOG
from raysim.data.arrays import flat, take_rows
from raysim.data.augment import check_pixels, make_chain
from raysim.data.features import ArrayColumn, Features, ImageColumn, features
from raysim.data.images import is_image, pixels, png, with_places
from raysim.data.sources import LoadedDataSet
from raysim.data.targets import check_classes_of_samples
from raysim.data.tensors import LARGEST_PIXEL

ROWS_AT_ONCE = 1024
"""Rows in one batch of the augmentation."""

Split = Literal["train", "test", "all"]


def select_split(source: LoadedDataSet, split: Split) -> LoadedDataSet:
    """Return the data set with the rows of one split to partition.

    Only the split "train" keeps the data set's own test set.

    Args:
        source: the data set; without a test set of its own, all its rows are training rows.
        split: "train", "test", or "all" for both: training rows first, like RADFed.

    Raises:
        InputError: `split` is "test", and there is no test set.
    """
    if split == "train":
        return source
    if split == "all":
        tables = [source.train] if source.test is None else [source.train, source.test]
        return replace(source, train=pa.concat_tables(tables), test=None)
    if source.test is None:
        raise InputError(
            f'data.split = "test": must be "train" or "all", because {source.name} has no test set of its own; '
            "remove it"
        )
    return replace(source, train=source.test, test=None)


def select_classes(source: LoadedDataSet, classes: Sequence[int | str]) -> LoadedDataSet:
    """Return the data set with the rows of some classes; their labels stay.

    Args:
        source: the data set with all rows.
        classes: classes to keep.

    Raises:
        InputError: the rows to partition lack a class; the message lists their classes.
    """
    check_classes_of_samples(source.train.schema, source.label, "data.classes")
    there = distinct([source.train[source.label]])
    for name in classes:
        # Compare types too, because True == 1 in Python.
        if not any(name == own and type(name) is type(own) for own in there):
            listed = [str(own) for own in there]
            shown = listed if len(listed) <= MAX_NAMES else [*listed[: MAX_NAMES - 2], "...", listed[-1]]
            raise InputError(f"data.classes has {name!r}: must be among the classes {', '.join(shown)}; name those")
    test = None if source.test is None else rows_of_classes(source.test, source.label, classes)
    if test is not None and not test.num_rows:
        LOG.warning("data.classes removes all rows of the test set of %s; the run has none", source.name)
        test = None
    return replace(source, train=rows_of_classes(source.train, source.label, classes), test=test)


def rows_of_classes(table: pa.Table, label: str, classes: Sequence[int | str]) -> pa.Table:
    """Return the rows of some classes, even if there are none."""
    return take_rows(table, np.flatnonzero(class_codes(table[label], classes) >= 0))


def draw_sample(train: pa.Table, test: pa.Table | None, sample: float, seed: int) -> Tables:
    """Draw training rows, and the same share of the test rows, without replacement; the rows keep their order.

    Args:
        train: rows to partition.
        test: global test set.
        sample: share of the training rows in (0, 1), or their number.
        seed: key of the draws.

    Raises:
        InputError: there are fewer training rows.
    """
    if sample > train.num_rows:
        raise InputError(
            f"data.sample = {sample}: must be at most {train.num_rows}, the number of training rows; lower it, or "
            "leave it out"
        )
    share = sample if sample < 1 else sample / train.num_rows

    def drawn(table: pa.Table, part: int) -> pa.Table:
        rows = generator(seed, Purpose.SAMPLE, part).permutation(table.num_rows)
        return take_rows(table, np.sort(rows[: max(1, round(share * table.num_rows))]))

    return drawn(train, 0), None if test is None else drawn(test, 1)


def append_augmented(
    table: pa.Table,
    label: str,
    dividing: Collection[str],
    names: Sequence[str],
    strengths: Mapping[str, Any],
    seed: int,
) -> pa.Table:
    """Return the table followed by one augmented copy of each row, in order: twice the rows.

    Args:
        table: rows with a column of images: uint8 arrays, floats in [0, 1], or encoded images, whose copies are PNG.
        label: column of classes.
        dividing: columns that identify a row's owner; a copy has those of its row.
        names: augmentations, in their order.
        strengths: parameters of all augmentations, by name.
        seed: seed of the run.

    Raises:
        InputError: there are no images, an image cannot be decoded or is too small, or values to recolour are not
            pixels in [0, 1].

    Paper: FedMMB, section 4 ("the train size is doubled after augmentation").
    """
    check_classes_of_samples(table.schema, label, 'data.augment with "append"')
    form, change = features(table.schema, label, dividing), make_chain(names, strengths)
    draws = torch.rand(
        table.num_rows, change.numbers, generator=torch.Generator().manual_seed(torch_seed(seed, Purpose.AUGMENT))
    )
    column = _image_column(table.schema, form)
    place = table.schema.get_field_index(column)
    parts: list[pa.Array] = []
    for start in range(0, table.num_rows, ROWS_AT_ONCE):
        rows = table[column].slice(start, ROWS_AT_ONCE).combine_chunks()
        if "colour-jitter" in names and isinstance(form, ArrayColumn) and pa.types.is_floating(form.values):
            values = torch.tensor(flat(rows).to_numpy(zero_copy_only=False))
            check_pixels(values, f"rows {start} to {start + len(rows) - 1} of column {column!r}")
        parts.append(_augmented(rows, form, change, draws[start : start + ROWS_AT_ONCE], start))
    field = table.schema.field(place)
    return pa.concat_tables([table, table.set_column(place, field, pa.chunked_array(parts, field.type))])


def _image_column(schema: pa.Schema, form: Features) -> str:
    if isinstance(form, ImageColumn):
        return form.column
    what = "columns of numbers"
    if isinstance(form, ArrayColumn):
        kind = schema.field(form.column).type
        usable = pa.types.is_uint8(form.values) or pa.types.is_floating(form.values)
        if usable and is_image(form.shape) and not isinstance(kind, pa.ExtensionType):
            return form.column
        what = f"column {form.column!r} of {form.values} arrays of shape {form.shape}"
    raise InputError(
        f'data.augment with "append" on {what}: must be on images, uint8 or float arrays [1 or 3, height, width] or '
        "encoded; remove it"
    )


def _augmented(rows: pa.Array, form: Features, change: Augment, draws: torch.Tensor, first: int) -> pa.Array:
    """Return rows of a column of images augmented; `first` is the number of the first row, for error messages."""
    if isinstance(form, ArrayColumn):
        # A slice of nested lists may begin anywhere in its memory; `flat` respects its start.
        values = flat(rows).to_numpy(zero_copy_only=False).reshape(len(rows), *form.shape)
        return nested(_augmented_pixels(values, change, draws)).cast(rows.type)
    files = []
    for draw, (data, where) in zip(draws, with_places(rows, "the data set's row", first), strict=True):
        files.append(png(_augmented_pixels(pixels(data, where)[None], change, draw[None])[0]))
    if not pa.types.is_struct(rows.type):
        return pa.array(files, rows.type)
    names = [field.name for field in rows.type]
    return pa.array([{name: file if name == "bytes" else None for name in names} for file in files], rows.type)


def _augmented_pixels(values: npt.NDArray[Any], change: Augment, draws: torch.Tensor) -> npt.NDArray[Any]:
    whole = values.dtype == np.uint8
    x = torch.from_numpy(values.astype(np.float32) / (LARGEST_PIXEL if whole else 1))
    made = change(x, draws).numpy()
    return (np.rint(made * LARGEST_PIXEL) if whole else made).astype(values.dtype)


def joined_by_owner(train: pa.Table, test: pa.Table, owner: str, mark: str) -> pa.Table:
    """Return the rows of both tables, with a column that is true for those of the second.

    Args:
        train: training rows.
        test: test rows with the same columns.
        owner: column that says whose a row is.
        mark: name of the new column.

    Raises:
        InputError: an owner has test rows alone, or a column has that name already.
    """
    if mark in train.schema.names:
        raise InputError(
            f"column {mark!r}: must have another name, because raysim marks the test rows by it; rename it"
        )
    if owner in train.schema.names:  # The partitioner reports a missing column.
        owners = test[owner].cast(pa.string())
        strange = owners.filter(pc.invert(pc.is_in(owners, pc.unique(train[owner].cast(pa.string())))))
        if len(strange):
            raise InputError(
                f"{strange[0].as_py()!r} of column {owner!r} has rows in the global test set and none for training: "
                "must have some, because its rows test its own model; drop these test rows"
            )
    parts = ((train, False), (test, True))
    return pa.concat_tables([part.append_column(mark, pa.repeat(is_test, len(part))) for part, is_test in parts])
