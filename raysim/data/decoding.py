"""A population's images decoded, converted and resized, once: the same population with pixels, in a cache."""

import io
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from PIL import Image

from partitioning import Population, rewrite
from partitioning.store.manifest import MANIFEST
from raysim.common.errors import InputError
from raysim.data.arrays import flat, nested
from raysim.data.cache import cache as default_cache
from raysim.data.features import Arrays, Features, Images, Numbers, features
from raysim.data.images import FORMATS, Picture, Pixels, encoded, is_image, paths, pixels
from raysim.data.masks import LARGEST_CLASS, Masks, masks_of, resized

VERSION = 1
"""Part of a cached folder's name: raise it when the same images would decode to other pixels."""

PLAIN = (pa.uint8(), pa.float32(), pa.float64())
"""What arrays that are images may hold."""

Progress = Callable[[int, int], None]

Converter = Callable[[pa.RecordBatch, str], pa.RecordBatch]
"""From a batch and its owner to the same rows, one column changed."""


def decode_population(
    population: Population,
    cache: Path | None = None,
    *,
    picture: Picture = Picture(),
    progress: Progress | None = None,
) -> Path:
    """Return the folder of the same population with its images as they are to be, which the first call makes.

    Clients, splits, sizes, rows and their order stay. The column of images becomes uint8 arrays of shape
    [1, height, width] where they are grey, [3, height, width] where they have colour. Labels that are images become
    uint8 arrays [height, width] of the same size, each pixel the nearest one's, and their column says how many classes
    there are: the largest and one, of all clients and test sets. The population itself stays, so that each experiment
    may choose its size.

    Args:
        population: with any features; one that needs no change is its own result.
        cache: folder that keeps decoded populations, by default `decoded` in raysim's cache.
        picture: what images are made, those that are arrays already, too.
        progress: called with the clients decoded so far and the number of clients.

    Raises:
        InputError: an image cannot be decoded, or differs from the first, or a label from its image, in size or colour;
            its client and row are named. Or a picture is asked for and there are no images. Nothing is left behind.
    """
    form = features(population.schema, population.manifest.label, population.manifest.dividing)
    masks = masks_of(population.schema, population.manifest.label)
    # Labels first: they are compared with their images as these are stored.
    steps = [
        None if masks is None else _masker(population, form, masks, picture),
        _converter(population, form, picture),
    ]
    convert = _OneByOne(tuple(step for step in steps if step is not None))
    if not convert.steps:
        return population.path
    folder = (cache or default_cache() / "decoded") / f"{population.digest}-{VERSION}{picture}"
    if not (folder / MANIFEST).is_file():
        try:
            rewrite(population, folder, convert, progress=progress)
        except (OSError, InputError):
            # Another process may have been faster; what it made is the same.
            if not (folder / MANIFEST).is_file():
                raise
        except MemoryError as error:
            raise InputError(
                f"data.image_size = {picture.size}: all pictures of a client must fit the memory ({error}); set a "
                "smaller one"
            ) from None
    try:
        Population.open(folder)
    except InputError as error:
        raise InputError(f"{error}; or remove {folder}, and its images are decoded again") from None
    return folder


@dataclass(frozen=True)
class _OneByOne:
    """Changes one column after the other."""

    steps: tuple[Converter, ...]

    def __call__(self, batch: pa.RecordBatch, owner: str) -> pa.RecordBatch:
        for step in self.steps:
            batch = step(batch, owner)
        return batch


@dataclass(frozen=True)
class _Decoder:
    """Puts pixels of one shape in the place of a column of encoded images."""

    column: str
    shape: tuple[int, ...]
    picture: Picture

    def __call__(self, batch: pa.RecordBatch, owner: str) -> pa.RecordBatch:
        place = batch.schema.get_field_index(self.column)
        decoded = np.empty((batch.num_rows, *self.shape), dtype=np.uint8)
        images = batch.column(place)
        for row, (data, path) in enumerate(zip(encoded(images), paths(images), strict=True)):
            where = f"column {self.column!r} of {owner}, row {row}{f' ({path})' if path else ''},"
            image = pixels(data.as_py(), where, self.picture)
            if image.shape != self.shape:
                raise InputError(
                    f"{where} has the shape {image.shape} where the first image has {self.shape}: "
                    f"all must be of one size, and either grey or colour; set {self._remedy(image, images, row)}"
                )
            decoded[row] = image
        array = nested(decoded)
        return batch.set_column(place, pa.field(self.column, array.type), array)

    def _remedy(self, image: Pixels, images: pa.Array, row: int) -> str:
        """The keys that make an image, and those behind it in its batch that can be decoded, as the first one is."""
        shapes = {image.shape}
        for data in encoded(images)[row + 1 :]:
            with suppress(InputError):
                shapes.add(pixels(data.as_py(), "", self.picture).shape)
        keys = {
            "data.image_size = [HEIGHT, WIDTH]": any(shape[1:] != self.shape[1:] for shape in shapes),
            "data.channels = 3, or 1": any(shape[0] != self.shape[0] for shape in shapes),
        }
        return " and ".join(key for key, is_needed in keys.items() if is_needed)


@dataclass(frozen=True)
class _Fitter:
    """Converts and resizes a column of arrays."""

    column: str
    shape: tuple[int, ...]
    picture: Picture

    def __call__(self, batch: pa.RecordBatch, owner: str) -> pa.RecordBatch:
        place = batch.schema.get_field_index(self.column)
        values = flat(batch.column(place)).to_numpy(zero_copy_only=False).reshape(-1, *self.shape)
        array = nested(self.picture.of_arrays(values))
        return batch.set_column(place, pa.field(self.column, array.type), array)


@dataclass(frozen=True)
class _Masker:
    """Puts bytes of one shape, a class each, in the place of labels that are images.

    Args:
        masks: the label column.
        form: the images that they are of.
        shape: height and width to come to.
        classes: how many there are.
    """

    masks: Masks
    form: Arrays | Images
    shape: tuple[int, int]
    classes: int

    def __call__(self, batch: pa.RecordBatch, owner: str) -> pa.RecordBatch:
        place = batch.schema.get_field_index(self.masks.column)
        made = np.empty((batch.num_rows, *self.shape), dtype=np.uint8)
        for row, (size, (where, mask)) in enumerate(
            zip(_sizes(batch, owner, self.form), self.masks.each(batch, owner), strict=True)
        ):
            if mask.shape != size:
                raise InputError(
                    f"{where} has the height and width {mask.shape} where its image has {size}: must have a class for "
                    "each pixel of the image; resize it by the nearest pixel, or drop the row"
                )
            made[row] = resized(mask, self.shape)
        field = self.masks.field(self.shape, self.classes)
        return batch.set_column(place, field, nested(made))


def _masker(population: Population, form: Features, masks: Masks, picture: Picture) -> _Masker | None:
    """What has to be done to labels that are images; None for nothing."""
    if isinstance(form, Numbers):
        raise ValueError("labels that are images beside numbers: `features` refuses them")
    client = _first(population)
    shape = picture.size or next(_sizes(population.batch(client).slice(0, 1), f"client {client}", form))
    if masks.is_bytes and masks.shape == shape and masks.classes is not None:
        return None
    return _Masker(masks, form, shape, _count_classes(population, masks))


def _sizes(batch: pa.RecordBatch, owner: str, form: Arrays | Images) -> Iterator[tuple[int, int]]:
    """Height and width of each image as it is stored."""
    if isinstance(form, Arrays):
        yield from [(form.shape[1], form.shape[2])] * batch.num_rows
        return
    for row, data in enumerate(encoded(batch.column(form.column))):
        try:
            with Image.open(io.BytesIO(data.as_py()), formats=FORMATS) as image:
                yield image.height, image.width
        except Exception:
            # Of any class; decoding says in a line what is wrong.
            _, height, width = pixels(data.as_py(), f"column {form.column!r} of {owner}, row {row},").shape
            yield height, width


def _first(population: Population) -> int:
    """The first client that has samples."""
    return int(np.flatnonzero(population.sizes)[0])


def _count_classes(population: Population, masks: Masks) -> int:
    """How many classes the pixels have: as the column says or, where it says nothing, the largest and one."""
    if masks.classes is not None:
        return masks.classes
    largest = max(
        int(mask[mask <= LARGEST_CLASS].max(initial=0))
        for owner, batch in _batches(population)
        for _, mask in masks.each(batch, owner)
    )
    if not largest:
        raise InputError(
            f"label column {masks.column!r} has pixels of the class 0 alone: must have two classes at least, 255 being "
            "none; number the classes from 0"
        )
    return largest + 1


def _batches(population: Population) -> Iterator[tuple[str, pa.RecordBatch]]:
    """All samples, and whose they are."""
    for client in range(len(population)):
        yield f"client {client}", population.batch(client)
    for name in population.tests:
        for number in range(len(population.slices_of(name))):
            yield f"test slice {number}", population.test_batch(number, name)


def _converter(population: Population, form: Features, picture: Picture) -> _Decoder | _Fitter | None:
    """What has to be done to images; None for nothing."""
    if isinstance(form, Images):
        client = _first(population)
        first = encoded(population.batch(client).column(form.column))[0].as_py()
        shape = pixels(first, f"column {form.column!r} of client {client}, row 0,", picture).shape
        return _Decoder(form.column, shape, picture)
    if not picture:
        return None
    asked = {"data.image_size": picture.size, "data.channels": picture.channels}
    key = " and ".join(name for name, value in asked.items() if value is not None)
    if not isinstance(form, Arrays):
        raise InputError(f"{key} on columns of numbers: must be left out, for there are no images; remove it")
    if not (is_image(form.shape) and form.values in PLAIN):
        raise InputError(
            f"{key} on column {form.column!r} of {form.values} arrays of shape {form.shape}: must be on images, uint8 "
            "or float arrays [1 or 3, height, width]; remove it"
        )
    return None if picture.shape(form.shape) == form.shape else _Fitter(form.column, form.shape, picture)
