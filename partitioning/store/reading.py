"""Reading clients.parquet: every value is checked and made compact, a batch of clients at a time."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from partitioning.common.checks import Integers
from partitioning.common.columns import class_codes
from partitioning.common.errors import InputError
from partitioning.store.clients import SCHEMA, ClientTable, Places
from partitioning.store.files import StoredFile
from partitioning.store.splits import SPLITS

_NULLABLE = ("name", "domain", "site", "file")
_WORDS = {"names": "name", "domains": "domain", "sites": "site"}
_PLAIN = ("client", "fold", "n", "n_test", "batch", "checksum", "offset", "length")  # plain numbers


@dataclass(frozen=True)
class Reader:
    """What a table is read against.

    Args:
        shards: the files that it may name; none for an index-only population, whose clients have no file.
        classes: how many there are: C.
        features: how many categories each has; D together.
    """

    shards: Sequence[StoredFile]
    classes: int
    features: Sequence[int] = ()

    def read(self, batches: Iterable[pa.RecordBatch]) -> ClientTable:
        """Read a table; raises InputError where it is not in the form that `ClientTable.to_arrow` gives.

        Each batch is made compact before the next is read, so that the whole is never held wide.
        """
        parts = [self._read(pa.RecordBatch.from_pylist([], SCHEMA), 0)]  # of an empty table, all
        first = 0
        for batch in batches:
            parts.append(self._read(batch, first))
            first += batch.num_rows
        return _join(parts)

    def _read(self, batch: pa.RecordBatch, first: int) -> ClientTable:
        # The clients of one batch, of which `first` is the id of the first.
        self._check_form(batch)
        columns = {
            "split": class_codes(batch.column("split"), SPLITS),
            **{name: _matrix(batch.column(name), width) for name, width in self._widths.items()},
            "shard": class_codes(batch.column("file"), [shard.name for shard in self.shards]),
            **{name: batch.column(name).to_numpy() for name in _PLAIN},
        }
        self._check_values(columns, first)
        words = {name: batch.column(column) for name, column in _WORDS.items()}
        return _compact(columns, words, index_only=not self.shards)

    @property
    def _widths(self) -> dict[str, int]:
        return {"class_counts": self.classes, "feature_counts": sum(self.features)}

    def _check_form(self, batch: pa.RecordBatch) -> None:
        for field in SCHEMA:
            if batch.schema.names.count(field.name) != 1 or batch.schema.field(field.name).type != field.type:
                raise InputError(f"clients.parquet has no column {field.name!r} of type {field.type}")
            if field.name not in _NULLABLE and batch.column(field.name).null_count:
                raise InputError(f"clients.parquet has missing values in column {field.name!r}")
        for name, width in self._widths.items():
            if batch.column(name).flatten().null_count:
                raise InputError(f"clients.parquet has missing values in column {name!r}")
            if not np.all(batch.column(name).value_lengths().to_numpy(zero_copy_only=False) == width):
                kind = "classes" if name == "class_counts" else "categories of features"
                raise InputError(f"clients.parquet does not count {width} {kind} for every client")
        if not self.shards and batch.column("file").null_count < batch.num_rows:
            raise InputError("clients.parquet names a file that is not in the manifest")

    def _check_values(self, columns: Mapping[str, Integers], first: int) -> None:
        if not np.array_equal(columns["client"], np.arange(first, first + columns["client"].size)):
            raise InputError("clients.parquet does not number its clients 0, 1, 2, ...")
        n, n_test = columns["n"], columns["n_test"]
        sound = {
            "split": columns["split"] >= 0,
            "fold": columns["fold"] >= -1,
            "n": n == columns["class_counts"].sum(axis=1),
            "n_test": (n_test >= 0) & (n_test <= n),
            "class_counts": (columns["class_counts"] >= 0).all(axis=1),
            "feature_counts": self._sound_features(columns["feature_counts"], n),
            **self._sound_places(columns),
        }
        for name, rows in sound.items():
            if not rows.all():
                raise InputError(f"clients.parquet has a wrong {name!r} for client {first + int(np.argmin(rows))}")

    def _sound_features(self, counts: Integers, n: Integers) -> npt.NDArray[np.bool_]:
        # Every sample counts for one category of each feature.
        ends = np.cumsum(self.features)[:-1]
        sums = [part.sum(axis=1) for part in np.split(counts, ends, axis=1)] if self.features else []
        sound: npt.NDArray[np.bool_] = np.all([(counts >= 0).all(axis=1), *(total == n for total in sums)], axis=0)
        return sound

    def _sound_places(self, columns: Mapping[str, Integers]) -> dict[str, npt.NDArray[np.bool_]]:
        if not self.shards:
            return {name: columns[name] == 0 for name in ("batch", "checksum", "offset", "length")}
        if columns["shard"].min(initial=0) < 0:
            raise InputError("clients.parquet names a file that is not in the manifest")
        starts, ends, batches = (
            np.array([getattr(shard, name) for shard in self.shards])[columns["shard"]]
            for name in ("start", "end", "batches")
        )
        batch, offset, length = (columns[name] for name in ("batch", "offset", "length"))
        return {
            "batch": (batch >= 0) & (batch < batches),
            "offset": (offset >= starts) & (length >= 0) & (length <= ends - offset),
        }


def _matrix(lists: pa.Array, width: int) -> Integers:
    matrix: Integers = lists.flatten().to_numpy().reshape(len(lists), width)
    return matrix


def narrow(counts: Integers) -> npt.NDArray[np.signedinteger]:
    """Return counts in the narrowest signed type that holds them."""
    narrowest: npt.NDArray[np.signedinteger] = counts.astype(np.min_scalar_type(-1 - counts.max(initial=0)))
    return narrowest


def _compact(columns: Mapping[str, Integers], words: Mapping[str, pa.Array], *, index_only: bool) -> ClientTable:
    places = Places(
        shard=columns["shard"].astype(np.int32),
        batch=columns["batch"].astype(np.int32),
        checksum=columns["checksum"].astype(np.uint32),
        offset=columns["offset"],
        length=columns["length"],
    )
    return ClientTable(
        split=columns["split"].astype(np.int8),
        fold=columns["fold"].astype(np.int32),
        names=words["names"],
        domains=words["domains"],
        sites=words["sites"],
        n=columns["n"],
        n_test=columns["n_test"],
        class_counts=narrow(columns["class_counts"]),
        feature_counts=narrow(columns["feature_counts"]),
        places=None if index_only else places,
    )


def _join(parts: Sequence[ClientTable]) -> ClientTable:
    arrays = [field.name for field in fields(ClientTable) if field.name not in (*_WORDS, "places", "schema")]
    names, domains, sites = (pa.concat_arrays([getattr(part, name) for part in parts]) for name in _WORDS)
    if 0 < sites.null_count < len(sites):
        raise InputError("clients.parquet has missing values in column 'site'")
    places = [part.places for part in parts if part.places is not None]
    return ClientTable(
        **{name: np.concatenate([getattr(part, name) for part in parts]) for name in arrays},
        names=names if names.null_count < len(names) else None,
        domains=domains.dictionary_encode() if domains.null_count < len(domains) else None,
        sites=sites.dictionary_encode() if sites.null_count < len(sites) else None,
        places=_join_places(places) if places else None,
    )


def _join_places(parts: Sequence[Places]) -> Places:
    arrays = [field.name for field in fields(Places)]
    return Places(**{name: np.concatenate([getattr(part, name) for part in parts]) for name in arrays})
