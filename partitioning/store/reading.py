"""Reading clients.parquet: check every value and keep it compact, a batch of clients at a time."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from weakref import WeakValueDictionary

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from partitioning.common.checks import Integers
from partitioning.common.columns import class_codes, describe
from partitioning.common.errors import InputError
from partitioning.common.paths import read_bytes
from partitioning.store.clients import LOCATION_COLUMNS, LOCATIONS, SCHEMA, ClientTable, schema_of
from partitioning.store.files import StoredFile, reading
from partitioning.store.manifest import MANIFEST, Manifest
from partitioning.store.splits import SPLITS

READ_COUNTS = 2**20
"""Class and feature counts that are read at once."""

_NULLABLE = ("name", "domain", "site", "file")
_WORDS = {"names": "name", "domains": "domain", "sites": "site"}
_PLAIN = ("client", "fold", "n", "n_test", *LOCATION_COLUMNS)  # columns of numbers


_OPEN: WeakValueDictionary[str, ClientTable] = WeakValueDictionary()
# Tables in use, by the digest (sha256) of their manifests: a process opens the same population several times.


def read_clients(folder: Path, manifest: Manifest, digest: str) -> ClientTable:
    """Read clients.parquet of a population; raise InputError if it is not the file that was written."""
    path = manifest.clients.check(folder)
    if (table := _OPEN.get(digest)) is None:
        table = _OPEN[digest] = _read(path, manifest)
    return table


def _read(path: Path, manifest: Manifest) -> ClientTable:
    import pyarrow.parquet as pq

    content = read_bytes(path)
    features = [feature.size for feature in manifest.features]
    classes = len(manifest.classes)
    with reading(path), pq.ParquetFile(pa.BufferReader(content)) as file:
        if file.metadata.num_rows != manifest.counts.clients:
            raise InputError(f"{path} has {file.metadata.num_rows} clients, unlike {MANIFEST}")
        batches = file.iter_batches(max(1, READ_COUNTS // (classes + sum(features))))
        clients = parse_clients(batches, manifest.shards, classes, features)
        schema = schema_of(file.schema_arrow.metadata)
    if schema is not None and describe(schema) != manifest.columns:
        raise InputError(f"clients.parquet: its columns are not those in {MANIFEST}")
    pa.default_memory_pool().release_unused()  # Arrow would keep the memory of decoding, in every process of a run
    held = (len(clients), int(clients.n.sum()))
    if held != (manifest.counts.clients, manifest.counts.samples) or not held[1]:
        raise InputError(f"{path} has {held[0]} clients and {held[1]} samples, unlike {MANIFEST}")
    return replace(clients, schema=schema)


def parse_clients(
    batches: Iterable[pa.RecordBatch], shards: Sequence[StoredFile], classes: int, features: Sequence[int] = ()
) -> ClientTable:
    """Parse the rows of clients.parquet; each batch is made compact before the next is read.

    Args:
        batches: rows in id order.
        shards: files that a row may name; none in an index-only population.
        classes: number of classes C.
        features: categories of each feature, D in total.

    Raises:
        InputError: the rows are not in the form of `ClientTable.to_arrow`.
    """
    widths = {"class_counts": classes, "feature_counts": sum(features)}
    parts = [_parse(pa.RecordBatch.from_pylist([], SCHEMA), 0, shards, widths, features)]  # all of an empty table
    first = 0
    for batch in batches:
        parts.append(_parse(batch, first, shards, widths, features))
        first += batch.num_rows
    return _join(parts)


def _parse(
    batch: pa.RecordBatch, first: int, shards: Sequence[StoredFile], widths: Mapping[str, int], features: Sequence[int]
) -> ClientTable:
    # first: id of the first client of the batch.
    _check_form(batch, widths, index_only=not shards)
    columns = {
        "split": class_codes(batch.column("split"), SPLITS),
        **{name: _matrix(batch.column(name), width) for name, width in widths.items()},
        "shard": class_codes(batch.column("file"), [shard.name for shard in shards]),
        **{name: batch.column(name).to_numpy() for name in _PLAIN},
    }
    _check_values(columns, first, shards, features)
    locations = np.empty(batch.num_rows, LOCATIONS)
    for name in LOCATIONS.names or ():
        locations[name] = columns[name]
    return ClientTable(
        split=columns["split"].astype(np.int8),
        fold=columns["fold"].astype(np.int32),
        n=columns["n"],
        n_test=columns["n_test"],
        class_counts=_narrow(columns["class_counts"]),
        feature_counts=_narrow(columns["feature_counts"]),
        locations=locations if shards else None,
        **{name: batch.column(column) for name, column in _WORDS.items()},
    )


def _check_form(batch: pa.RecordBatch, widths: Mapping[str, int], *, index_only: bool) -> None:
    for field in SCHEMA:
        if batch.schema.names.count(field.name) != 1 or batch.schema.field(field.name).type != field.type:
            raise InputError(f"clients.parquet has no column {field.name!r} of type {field.type}")
        if field.name not in _NULLABLE and batch.column(field.name).null_count:
            raise InputError(f"clients.parquet has missing values in column {field.name!r}")
    for name, width in widths.items():
        if batch.column(name).flatten().null_count:
            raise InputError(f"clients.parquet has missing values in column {name!r}")
        if not np.all(batch.column(name).value_lengths().to_numpy(zero_copy_only=False) == width):
            kind = "classes" if name == "class_counts" else "categories of features"
            raise InputError(f"clients.parquet does not count {width} {kind} for every client")
    if index_only and batch.column("file").null_count < batch.num_rows:
        raise InputError("clients.parquet names a file that is not in the manifest")


def _check_values(
    columns: Mapping[str, Integers], first: int, shards: Sequence[StoredFile], features: Sequence[int]
) -> None:
    if not np.array_equal(columns["client"], np.arange(first, first + columns["client"].size)):
        raise InputError("clients.parquet does not number its clients 0, 1, 2, ...")
    n, n_test = columns["n"], columns["n_test"]
    sound = {
        "split": columns["split"] >= 0,
        "fold": columns["fold"] >= -1,
        "n": n == columns["class_counts"].sum(axis=1),
        "n_test": (n_test >= 0) & (n_test <= n),
        "class_counts": (columns["class_counts"] >= 0).all(axis=1),
        "feature_counts": _sound_features(columns["feature_counts"], n, features),
        **_sound_locations(columns, shards),
    }
    for name, rows in sound.items():
        if not rows.all():
            raise InputError(f"clients.parquet has a wrong {name!r} for client {first + int(np.argmin(rows))}")


def _sound_features(counts: Integers, n: Integers, features: Sequence[int]) -> npt.NDArray[np.bool_]:
    # Every sample counts for one category of each feature.
    sums = [part.sum(axis=1) for part in np.split(counts, np.cumsum(features)[:-1], axis=1)] if features else []
    sound: npt.NDArray[np.bool_] = np.all([(counts >= 0).all(axis=1), *(total == n for total in sums)], axis=0)
    return sound


def _sound_locations(columns: Mapping[str, Integers], shards: Sequence[StoredFile]) -> dict[str, npt.NDArray[np.bool_]]:
    if not shards:
        return {name: columns[name] == 0 for name in LOCATION_COLUMNS}
    if columns["shard"].min(initial=0) < 0:
        raise InputError("clients.parquet names a file that is not in the manifest")
    starts, ends, batches = (
        np.array([getattr(shard, name) for shard in shards])[columns["shard"]] for name in ("start", "end", "batches")
    )
    batch, offset, length = (columns[name] for name in ("batch", "offset", "length"))
    return {
        "batch": (batch >= 0) & (batch < batches),
        "offset": (offset >= starts) & (length >= 0) & (length <= ends - offset),
    }


def _matrix(lists: pa.Array, width: int) -> Integers:
    matrix: Integers = lists.flatten().to_numpy().reshape(len(lists), width)
    return matrix


def _narrow(counts: Integers) -> npt.NDArray[np.signedinteger]:
    # The narrowest signed type that holds the counts.
    narrow: npt.NDArray[np.signedinteger] = counts.astype(np.min_scalar_type(-1 - counts.max(initial=0)))
    return narrow


def _join(parts: Sequence[ClientTable]) -> ClientTable:
    arrays = [field.name for field in fields(ClientTable) if field.name not in (*_WORDS, "locations", "schema")]
    names, domains, sites = (pa.concat_arrays([getattr(part, name) for part in parts]) for name in _WORDS)
    if 0 < sites.null_count < len(sites):
        raise InputError("clients.parquet has missing values in column 'site'")
    locations = [part.locations for part in parts if part.locations is not None]
    return ClientTable(
        **{name: np.concatenate([getattr(part, name) for part in parts]) for name in arrays},
        names=names if names.null_count < len(names) else None,
        domains=domains.dictionary_encode() if domains.null_count < len(domains) else None,
        sites=sites.dictionary_encode() if sites.null_count < len(sites) else None,
        locations=np.concatenate(locations) if locations else None,
    )
