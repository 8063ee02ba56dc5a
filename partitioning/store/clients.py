"""clients.parquet: one row a client, in id order, that says what it has and where its samples are."""

from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from partitioning.common.checks import Integers
from partitioning.store.files import Section, StoredFile
from partitioning.store.splits import SPLITS

SCHEMA = pa.schema(
    [
        ("client", pa.int64()),
        ("name", pa.string()),
        ("domain", pa.string()),
        ("split", pa.string()),
        ("fold", pa.int64()),
        ("site", pa.string()),
        ("n", pa.int64()),
        ("n_test", pa.int64()),
        ("class_counts", pa.list_(pa.int64())),
        ("feature_counts", pa.list_(pa.int64())),
        ("file", pa.string()),
        ("batch", pa.int64()),
        ("checksum", pa.uint32()),
        ("offset", pa.int64()),
        ("length", pa.int64()),
    ]
)
_SAMPLES = b"schema"  # in the metadata: the folder of a site that has no client has no shard that says it
_NUMBERS_OF_PLACES = ("batch", "checksum", "offset", "length")


@dataclass(frozen=True)
class Places:
    """Where clients' record batches are, as arrays [K]; `shard` is a file's place in the manifest's list."""

    shard: npt.NDArray[np.int32]
    batch: npt.NDArray[np.int32]
    checksum: npt.NDArray[np.uint32]
    offset: Integers
    length: Integers


@dataclass(frozen=True)
class ClientTable:
    """The columns of clients.parquet as arrays [K], compact because every process of a run holds them.

    Args:
        split: a place in `SPLITS`.
        fold: -1 without folds.
        names: strings, some perhaps null; None where all are.
        domains: as `names`, dictionary-encoded.
        n: samples, its own test part included.
        n_test: samples of its own test part.
        class_counts: samples a class [K, C], of the narrowest type that holds them.
        feature_counts: samples a category of each feature, one feature after the other [K, D], as narrow.
        places: where its samples are; None in an index-only population.
        sites: strings, dictionary-encoded, none null; None where there are no sites.
        schema: of the samples; None where it is not noted.
    """

    split: npt.NDArray[np.int8]
    fold: npt.NDArray[np.signedinteger]
    names: pa.Array | None
    domains: pa.Array | None
    n: Integers
    n_test: Integers
    class_counts: npt.NDArray[np.signedinteger]
    feature_counts: npt.NDArray[np.signedinteger]
    places: Places | None = None
    sites: pa.Array | None = None
    schema: pa.Schema | None = None

    def __len__(self) -> int:
        return self.n.size

    def section(self, client: int) -> Section:
        """Return where a client's record batch is in its file."""
        if self.places is None:
            raise ValueError("an index-only table has no sections")
        columns = (self.n, self.places.offset, self.places.length, self.places.checksum)
        return Section(*(int(column[client]) for column in columns))

    def to_arrow(self, shards: Sequence[StoredFile]) -> pa.Table:
        """Return the table that is written, with file names in place of numbers."""
        absent = pa.nulls(len(self), pa.string())
        columns = {
            "client": np.arange(len(self)),
            "name": absent if self.names is None else self.names,
            "domain": absent if self.domains is None else self.domains.cast(pa.string()),
            "split": pa.array(SPLITS).take(pa.array(self.split)),
            "fold": self.fold.astype(np.int64),
            "site": absent if self.sites is None else self.sites.cast(pa.string()),
            "n": self.n,
            "n_test": self.n_test,
            "class_counts": _lists(self.class_counts),
            "feature_counts": _lists(self.feature_counts),
            **self._columns_of_places(shards),
        }
        schema = SCHEMA if self.schema is None else SCHEMA.with_metadata({_SAMPLES: b64encode(self.schema.serialize())})
        return pa.table(columns, schema=schema)

    def _columns_of_places(self, shards: Sequence[StoredFile]) -> dict[str, Any]:
        if self.places is None:
            zeros = np.zeros(len(self), np.int64)
            return {"file": pa.nulls(len(self), pa.string())} | dict.fromkeys(_NUMBERS_OF_PLACES, zeros)
        files = pa.array([shard.name for shard in shards], pa.string()).take(pa.array(self.places.shard))
        return {"file": files} | {name: getattr(self.places, name) for name in _NUMBERS_OF_PLACES}


def schema_of(metadata: Mapping[bytes, bytes] | None) -> pa.Schema | None:
    """Return the schema of the samples that clients.parquet notes in its metadata; None where it does not."""
    noted = (metadata or {}).get(_SAMPLES)
    return None if noted is None else pa.ipc.read_schema(pa.py_buffer(b64decode(noted)))


def _lists(counts: npt.NDArray[np.signedinteger]) -> pa.Array:
    bounds = np.arange(len(counts) + 1, dtype=np.int32) * counts.shape[1]
    return pa.ListArray.from_arrays(pa.array(bounds), pa.array(counts.ravel(), pa.int64()))
