"""A population's images decoded, converted and resized, once: the same population with pixels, in a cache."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from partitioning import Population, rewrite
from partitioning.population import MANIFEST
from raysim.data.arrays import flat, nested
from raysim.data.cache import cache as default_cache
from raysim.data.features import Arrays, Features, Images, features
from raysim.data.images import Picture, encoded, is_image, paths, pixels
from raysim.errors import InputError

VERSION = 1
"""Part of a cached folder's name: raise it when the same images would decode to other pixels."""

PLAIN = (pa.uint8(), pa.float32(), pa.float64())
"""What arrays that are images may hold."""

Progress = Callable[[int, int], None]


def decode_population(
    population: Population,
    cache: Path | None = None,
    *,
    picture: Picture = Picture(),
    progress: Progress | None = None,
) -> Path:
    """Return the folder of the same population with its images as they are to be, which the first call makes.

    Clients, splits, sizes, rows and their order stay. The column of images becomes uint8 arrays of shape
    [1, height, width] where they are grey, [3, height, width] where they have colour. The population itself stays,
    so that each experiment may choose its size.

    Args:
        population: with any features; one that needs no change is its own result.
        cache: folder that keeps decoded populations, by default `decoded` in raysim's cache.
        picture: what images are made, those that are arrays already, too.
        progress: called with the clients decoded so far and the number of clients.

    Raises:
        InputError: an image cannot be decoded, or differs from the first in size or colour; its client and
            row are named. Or a picture is asked for and there are no images. Nothing is left behind.
    """
    form = features(population.schema, population.manifest.label, population.manifest.dividing)
    convert = _converter(population, form, picture)
    if convert is None:
        return population.path
    folder = (cache or default_cache() / "decoded") / f"{population.digest}-{VERSION}{picture}"
    if not (folder / MANIFEST).is_file():
        try:
            rewrite(population, folder, convert, progress=progress)
        except (OSError, InputError):
            # Another process may have been faster; what it made is the same.
            if not (folder / MANIFEST).is_file():
                raise
    try:
        Population.open(folder)
    except InputError as error:
        raise InputError(f"{error}; or remove {folder}, and its images are decoded again") from None
    return folder


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
                alike = image.shape[0] == self.shape[0]
                key = "data.image_size = [HEIGHT, WIDTH]" if alike else "data.channels = 3, or 1"
                raise InputError(
                    f"{where} has the shape {image.shape} where the first image has {self.shape}: "
                    f"all must be of one size, and either grey or colour; set {key}"
                )
            decoded[row] = image
        array = nested(decoded)
        return batch.set_column(place, pa.field(self.column, array.type), array)


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


def _converter(population: Population, form: Features, picture: Picture) -> _Decoder | _Fitter | None:
    """What has to be done to each batch; None for nothing."""
    if isinstance(form, Images):
        client = int(np.flatnonzero(population.sizes)[0])
        first = encoded(population.batch(client).column(form.column))[0].as_py()
        shape = pixels(first, f"column {form.column!r} of client {client}, row 0,", picture).shape
        return _Decoder(form.column, shape, picture)
    if not picture:
        return None
    key = "data.channels" if picture.size is None else "data.image_size"
    if not isinstance(form, Arrays):
        raise InputError(f"{key} on columns of numbers: must be left out, for there are no images; remove it")
    if not (is_image(form.shape) and form.values in PLAIN):
        raise InputError(
            f"{key} on column {form.column!r} of {form.values} arrays of shape {form.shape}: must be on images, uint8 "
            "or float arrays [1 or 3, height, width]; remove it"
        )
    return None if picture.shape(form.shape) == form.shape else _Fitter(form.column, form.shape, picture)
