"""A population's encoded images decoded, once: the same population with pixels in their place, in a cache."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from partitioning import Population, rewrite
from partitioning.population import MANIFEST
from raysim.data.arrays import nested
from raysim.data.cache import cache as default_cache
from raysim.data.features import Images, features
from raysim.data.images import encoded, paths, pixels
from raysim.errors import InputError

VERSION = 1
"""Part of a cached folder's name: raise it when the same images would decode to other pixels."""

Progress = Callable[[int, int], None]


def decode_population(population: Population, cache: Path | None = None, *, progress: Progress | None = None) -> Path:
    """Return the folder of the same population with its encoded images decoded, which the first call does.

    Clients, splits, sizes, rows and their order stay. The column of images becomes uint8 arrays of shape
    [1, height, width] where they are grey, [3, height, width] where they have colour.

    Args:
        population: with any features; one without encoded images is its own result.
        cache: folder that keeps decoded populations, by default `decoded` in raysim's cache.
        progress: called with the clients decoded so far and the number of clients.

    Raises:
        InputError: an image cannot be decoded, or differs from the first in size or colour; its client and
            row are named. Nothing is left behind.
    """
    form = features(population.schema, population.manifest.label, population.manifest.dividing)
    if not isinstance(form, Images):
        return population.path
    folder = (cache or default_cache() / "decoded") / f"{population.digest}-{VERSION}"
    if not (folder / MANIFEST).is_file():
        try:
            rewrite(population, folder, _decoder(population, form.column), progress=progress)
        except (OSError, InputError):
            # Another process may have been faster; what it made is the same.
            if not (folder / MANIFEST).is_file():
                raise
    return folder


@dataclass(frozen=True)
class _Decoder:
    """Puts pixels of one shape in the place of a column of encoded images."""

    column: str
    shape: tuple[int, ...]

    def __call__(self, batch: pa.RecordBatch, owner: str) -> pa.RecordBatch:
        place = batch.schema.get_field_index(self.column)
        decoded = np.empty((batch.num_rows, *self.shape), dtype=np.uint8)
        images = batch.column(place)
        for row, (data, path) in enumerate(zip(encoded(images), paths(images), strict=True)):
            where = f"column {self.column!r} of {owner}, row {row}{f' ({path})' if path else ''},"
            image = pixels(data.as_py(), where)
            if image.shape != self.shape:
                raise InputError(
                    f"{where} has the shape {image.shape} where the first image has {self.shape}: "
                    "resizing is not done; give all images one size and either grey or colour"
                )
            decoded[row] = image
        array = nested(decoded)
        return batch.set_column(place, pa.field(self.column, array.type), array)


def _decoder(population: Population, column: str) -> _Decoder:
    client = int(np.flatnonzero(population.sizes)[0])
    first = encoded(population.batch(client).column(column))[0].as_py()
    return _Decoder(column, pixels(first, f"column {column!r} of client {client}, row 0,").shape)
