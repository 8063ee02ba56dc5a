"""A population's images, decoded, converted and resized once into a cached copy of the population."""

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from math import prod
from pathlib import Path
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from partitioning import Population, rewrite
from partitioning.common.bounds import check_memory
from partitioning.common.paths import cache
from partitioning.sources.arrays import nested
from partitioning.store.manifest import MANIFEST
from partitioning.store.writing import only_writer
from raysim.common.errors import InputError, unknown
from raysim.data.arrays import flat
from raysim.data.features import ArrayColumn, Features, ImageColumn, NumberColumns, features
from raysim.data.images import ImageFormat, Pixels, encoded, is_image, opened, pixels, with_places
from raysim.data.targets import LARGEST_CLASS, MaskColumn, masks_of, resized
from raysim.data.tensors import naming_samples

DECODED = "decoded"
"""Folder of raysim's cache with populations whose columns were changed."""

VERSION = 1
"""Part of a cached folder's name; raise it if the same images would decode to other pixels."""

IMAGE_TYPES = (pa.uint8(), pa.float32(), pa.float64())
"""Types of the values of arrays that are images."""

ColumnMaker: TypeAlias = Callable[[pa.RecordBatch, str], tuple[pa.Field, pa.Array]]
"""Function from a batch and its owner's name to a changed column."""


def decode_population(population: Population, picture: ImageFormat = ImageFormat()) -> Path:
    """Return the folder of the same population with decoded images; the first call makes it.

    Clients, splits, sizes, rows and their order stay. The column of images becomes uint8 arrays of shape
    [1, height, width] for grey images, [3, height, width] for colour. Labels that are images become uint8 arrays
    [height, width] of the same size, by the nearest pixel. Their column then tells the number of classes: the largest
    class of all clients and test sets, plus one. The population itself stays, so each experiment may choose its size.

    Args:
        population: population with any features; if nothing needs a change, the result is its own folder.
        picture: format of the images, also of those that are arrays already.

    Raises:
        InputError: an image cannot be decoded; an image differs from the first in size or colour, or a label from its
            image in size; or a format is asked for and there are no images. The message names the client and the row.
            No part of a copy is left behind.
    """
    with naming_samples(population, "its columns"):
        form = features(population.schema, population.manifest.label, population.manifest.dividing)
    masks = masks_of(population.schema, population.manifest.label)
    # Labels first, because they are compared with their images in the stored size.
    steps = [
        *([] if masks is None else _label_steps(population, form, masks, picture)),
        *_image_steps(population, form, picture),
    ]
    if not steps:
        return population.path

    def convert(batch: pa.RecordBatch, owner: str) -> pa.RecordBatch:
        for make in steps:
            field, column = make(batch, owner)
            batch = batch.set_column(batch.schema.get_field_index(field.name), field, column)
        return batch

    try:
        return rewritten(population, f"{VERSION}{picture}", convert)
    except MemoryError as error:
        raise InputError(
            f"data.image_size = {picture.size}: all pictures of a client must fit the memory ({error}); set a "
            "smaller one"
        ) from None


def drop_columns(population: Population, names: Sequence[str]) -> Path:
    """Return the folder of the same population without some features; the first call makes it.

    Args:
        population: population with these columns.
        names: columns to drop.

    Raises:
        InputError: the population has no such feature.
    """
    known = [each.name for each in features_of(population)]
    for name in names:
        if name not in known:
            raise unknown(f"column {name!r} of data.without", name, known)
    digest = hashlib.sha256(json.dumps(sorted(names)).encode()).hexdigest()[:16]
    return rewritten(population, f"without-{digest}", lambda batch, _: batch.drop_columns(list(names)))


def features_of(population: Population) -> list[pa.Field]:
    """Return the columns of a population that are features."""
    besides = {population.manifest.label, *population.manifest.dividing}
    return [each for each in population.schema if each.name not in besides]


def rewritten(
    population: Population,
    change: str,
    convert: Callable[[pa.RecordBatch, str], pa.RecordBatch],
    *,
    rows_at_once: int = 1,
) -> Path:
    """Return a cached folder of the same population with other columns; make it if it is missing.

    Args:
        population: population to read.
        change: name of the change, which with the population's digest names the folder.
        convert: see `partitioning.rewrite`, also for `rows_at_once`.

    Raises:
        InputError: a batch cannot be converted, or the folder is damaged.
        ElsewhereError: the population was opened without the samples of some sites.
    """
    if not population.are_here.all():
        # This machine's cache may have the copy, but those of the sites lack it.
        population.batch(int(np.argmin(population.are_here)))  # raises the error
    folder = cache() / DECODED / f"{population.digest}-{change}"
    with ExitStack() as alone:
        if not (folder / MANIFEST).is_file():
            with suppress(OSError):  # `rewrite` reports a cache that cannot be written, and needs no lock
                alone.enter_context(only_writer(folder))
        # Another process may be faster, also during the work if there are no locks; its result is the same.
        if not (folder / MANIFEST).is_file():
            try:
                rewrite(population, folder, convert, rows_at_once=rows_at_once)
            except (OSError, InputError):
                if not (folder / MANIFEST).is_file():
                    raise
    Population.open(folder)
    return folder


def cache_remedy(message: str) -> str:
    """Return the remedy if an error's message names a file in a cached folder of `rewritten`; "" if it does not."""
    found = re.search(rf"{re.escape(str(cache() / DECODED))}/[^/:]+", message)
    return f"; or remove {found[0]}, and raysim makes it again" if found else ""


def _image_steps(population: Population, form: Features, picture: ImageFormat) -> list[ColumnMaker]:
    if isinstance(form, ImageColumn):
        client = _first_client(population)
        images = population.batch(client).column(form.column)
        first, where = next(with_places(images, f"column {form.column!r} of client {client}, row"))
        shape = pixels(first, where, picture).shape
        return [_decoder(form.column, shape, picture)]
    if not picture:
        return []
    asked = {"data.image_size": picture.size, "data.channels": picture.channels}
    key = " and ".join(name for name, value in asked.items() if value is not None)
    if not isinstance(form, ArrayColumn):
        raise InputError(f"{key} on columns of numbers: must be left out, because there are no images; remove it")
    if not (is_image(form.shape) and form.values in IMAGE_TYPES):
        raise InputError(
            f"{key} on column {form.column!r} of {form.values} arrays of shape {form.shape}: must be on images, uint8 "
            "or float arrays [1 or 3, height, width]; remove it"
        )
    return [] if picture.shape(form.shape) == form.shape else [_resizer(form.column, form.shape, picture)]


def _decoder(column: str, shape: tuple[int, ...], picture: ImageFormat) -> ColumnMaker:
    """Return a function that decodes a column of encoded images, all of one shape."""

    def make(batch: pa.RecordBatch, owner: str) -> tuple[pa.Field, pa.Array]:
        check_memory(f"column {column!r} of {owner}, decoded,", batch.num_rows * prod(shape))
        decoded = np.empty((batch.num_rows, *shape), dtype=np.uint8)
        images = batch.column(column)
        for row, (data, where) in enumerate(with_places(images, f"column {column!r} of {owner}, row")):
            image = pixels(data, where, picture)
            if image.shape != shape:
                raise InputError(
                    f"{where} has the shape {image.shape}, but the first image has {shape}: all must be of one size, "
                    f"and either grey or colour; set {remedy(image, images, row)}"
                )
            decoded[row] = image
        array = nested(decoded)
        return pa.field(column, array.type), array

    def remedy(image: Pixels, images: pa.Array, row: int) -> str:
        """Return the keys that give this image, and the readable ones behind it in its batch, the first one's shape."""
        shapes = {image.shape}
        for data in encoded(images)[row + 1 :]:
            with suppress(InputError):
                shapes.add(pixels(data.as_py(), "", picture).shape)
        keys = {
            "data.image_size = [HEIGHT, WIDTH]": any(other[1:] != shape[1:] for other in shapes),
            "data.channels = 3, or 1": any(other[0] != shape[0] for other in shapes),
        }
        return " and ".join(key for key, is_needed in keys.items() if is_needed)

    return make


def _resizer(column: str, shape: tuple[int, ...], picture: ImageFormat) -> ColumnMaker:
    """Return a function that converts and resizes a column of arrays."""

    def make(batch: pa.RecordBatch, owner: str) -> tuple[pa.Field, pa.Array]:
        values = flat(batch.column(column)).to_numpy(zero_copy_only=False).reshape(-1, *shape)
        array = nested(picture.of_arrays(values))
        return pa.field(column, array.type), array

    return make


def _label_steps(population: Population, form: Features, masks: MaskColumn, picture: ImageFormat) -> list[ColumnMaker]:
    """Return the change of labels that are images, if any: bytes of one shape, a class each."""
    if isinstance(form, NumberColumns):
        raise ValueError("labels that are images beside numbers: `features` refuses them")
    client = _first_client(population)
    shape = picture.size or next(_sizes(population.batch(client).slice(0, 1), f"client {client}", form))
    if masks.is_bytes and masks.shape == shape and masks.classes is not None:
        return []
    field = masks.field(shape, _count_classes(population, masks))

    def make(batch: pa.RecordBatch, owner: str) -> tuple[pa.Field, pa.Array]:
        check_memory(f"column {field.name!r} of {owner}, decoded,", batch.num_rows * prod(shape))
        made = np.empty((batch.num_rows, *shape), dtype=np.uint8)
        pairs = zip(_sizes(batch, owner, form), masks.each(batch, owner), strict=True)
        for row, (size, (where, mask)) in enumerate(pairs):
            if mask.shape != size:
                raise InputError(
                    f"{where} has the height and width {mask.shape}, but its image has {size}: must have a class for "
                    "each pixel of the image; resize it by the nearest pixel, or drop the row"
                )
            made[row] = resized(mask, shape)
        return field, nested(made)

    return [make]


def _sizes(batch: pa.RecordBatch, owner: str, form: ArrayColumn | ImageColumn) -> Iterator[tuple[int, int]]:
    """Yield the stored height and width of each image."""
    if isinstance(form, ArrayColumn):
        yield from [(form.shape[1], form.shape[2])] * batch.num_rows
        return
    for data, where in with_places(batch.column(form.column), f"column {form.column!r} of {owner}, row"):
        try:
            with opened(data or b"") as image:
                yield image.height, image.width
        except Exception:
            # A decoder may raise anything; decoding reports the fault in one line.
            _, height, width = pixels(data, where).shape
            yield height, width


def _first_client(population: Population) -> int:
    return int(np.flatnonzero(population.sizes)[0])


def _count_classes(population: Population, masks: MaskColumn) -> int:
    """Return the number of classes that the column states, or else the largest class plus one."""
    if masks.classes is not None:
        return masks.classes
    largest = max(
        int(mask[mask <= LARGEST_CLASS].max(initial=0))
        for owner, batch in _batches(population)
        for _, mask in masks.each(batch, owner)
    )
    if not largest:
        raise InputError(
            f"label column {masks.column!r} has only pixels of class 0: must have at least two classes, and 255 for "
            "none; number the classes from 0"
        )
    return largest + 1


def _batches(population: Population) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Yield all samples with the name of their owner."""
    for client in range(len(population)):
        yield f"client {client}", population.batch(client)
    for name in population.tests:
        for number in range(len(population.slices_of(name))):
            yield f"test slice {number}", population.test_batch(number, name)
