"""A population's encoded images decoded, once: the same population with pixels in their place, in a cache."""

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from partitioning import Population
from partitioning.clients import ClientTable
from partitioning.columns import describe
from partitioning.files import write_file, write_files
from partitioning.manifest import ClientsFile, TestFile
from partitioning.population import MANIFEST
from partitioning.writing import appearing
from raysim.data.arrays import nested
from raysim.data.cache import cache as default_cache
from raysim.data.features import Images, features
from raysim.data.images import encoded, pixels
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
    form = features(population.schema, population.manifest.label)
    if not isinstance(form, Images):
        return population.path
    folder = (cache or default_cache() / "decoded") / f"{population.fingerprint}-{VERSION}"
    if not (folder / MANIFEST).is_file():
        try:
            with appearing(folder) as draft:
                _write(population, _decoder(population, form.column), draft, progress)
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
        for row, data in enumerate(encoded(batch.column(place))):
            where = f"column {self.column!r} of {owner}, row {row},"
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


def _write(population: Population, decode: _Decoder, folder: Path, progress: Progress | None) -> None:
    first = decode(population.batch(0).slice(0, 0), "client 0")
    written = list(write_files(folder, first.schema, _batches(population, decode, progress)))
    shards = tuple(stored for stored, _ in written)
    sections = [section for _, part in written for section in part]
    clients = ClientTable(
        split=population.splits,
        n=population.sizes,
        n_test=population.test_sizes,
        class_counts=population.class_counts,
        shard=np.repeat(np.arange(len(shards)), [shard.batches for shard in shards]),
        batch=np.concatenate([np.arange(shard.batches) for shard in shards]),
        checksum=np.array([section.checksum for section in sections]),
        offset=np.array([section.offset for section in sections]),
        length=np.array([section.length for section in sections]),
    )
    manifest = replace(
        population.manifest,
        columns=describe(first.schema),
        clients=_write_parquet(folder / population.manifest.clients.name, clients.to_arrow(shards)),
        shards=shards,
        test=_write_test(population, decode, first.schema, folder),
    )
    (folder / MANIFEST).write_bytes(manifest.to_json())


def _write_test(population: Population, decode: _Decoder, schema: pa.Schema, folder: Path) -> TestFile | None:
    test = population.manifest.test
    if test is None:
        return None
    slices = range(len(test.slices))
    batches = (decode(population.test_batch(i), f"test slice {i}") for i in slices)
    return TestFile(*write_file(folder / test.file.name, schema, batches))


def _write_parquet(path: Path, table: pa.Table) -> ClientsFile:
    pq.write_table(table, path)
    content = path.read_bytes()
    return ClientsFile(path.name, len(content), hashlib.sha256(content).hexdigest())


def _batches(population: Population, decode: _Decoder, progress: Progress | None) -> Iterator[pa.RecordBatch]:
    for client in range(len(population)):
        yield decode(population.batch(client), f"client {client}")
        if progress is not None:
            progress(client + 1, len(population))
