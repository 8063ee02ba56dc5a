"""clients.parquet: one row per client, in id order, with its counts and the location of its samples."""

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

LOCATIONS = np.dtype(
    [("shard", np.int32), ("batch", np.int32), ("checksum", np.uint32), ("offset", np.int64), ("length", np.int64)]
)
"""Location of a client's record batch; `shard` is an index in the manifest's list of shards."""

LOCATION_COLUMNS = ("batch", "checksum", "offset", "length")
"""Columns of clients.parquet that hold a location, besides `file`."""

_SAMPLES = b"schema"  # key in the metadata; a site without clients has no shard that would hold the schema


@dataclass(frozen=True)
class ClientTable:
    """Columns of clients.parquet as arrays [K], compact because every process of a run holds them.

    Args:
        split: index in `SPLITS`.
        fold: fold of each client; -1 without folds.
        names: names, null for a client without one; None if no client has a name.
        domains: domains, dictionary-encoded, null for a client without one; None if no client has a domain.
        n: samples, the client's own test part included.
        n_test: samples of the client's own test part.
        class_counts: samples per class [K, C], in the narrowest type that holds them.
        feature_counts: samples per category, feature after feature [K, D], in the narrowest type.
        locations: records of `LOCATIONS`; None in an index-only population.
        sites: sites, dictionary-encoded, without nulls; None without sites.
        schema: schema of the samples; None if the file does not hold it.
    """

    split: npt.NDArray[np.int8]
    fold: npt.NDArray[np.signedinteger]
    names: pa.Array | None
    domains: pa.Array | None
    n: Integers
    n_test: Integers
    class_counts: npt.NDArray[np.signedinteger]
    feature_counts: npt.NDArray[np.signedinteger]
    locations: npt.NDArray[np.void] | None = None
    sites: pa.Array | None = None
    schema: pa.Schema | None = None

    def __len__(self) -> int:
        return self.n.size

    def section(self, client: int) -> Section:
        """Return the section of a file that holds a client's record batch."""
        if self.locations is None:
            raise ValueError("an index-only table has no sections")
        location = self.locations[client]
        return Section(int(self.n[client]), *(int(location[name]) for name in ("offset", "length", "checksum")))

    def to_arrow(self, shards: Sequence[StoredFile]) -> pa.Table:
        """Return the table to write, with file names instead of indices."""
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
            **self._location_columns(shards),
        }
        schema = SCHEMA if self.schema is None else SCHEMA.with_metadata({_SAMPLES: b64encode(self.schema.serialize())})
        return pa.table(columns, schema=schema)

    def _location_columns(self, shards: Sequence[StoredFile]) -> dict[str, Any]:
        if self.locations is None:
            zeros = np.zeros(len(self), np.int64)
            return {"file": pa.nulls(len(self), pa.string())} | dict.fromkeys(LOCATION_COLUMNS, zeros)
        files = pa.array([shard.name for shard in shards], pa.string()).take(pa.array(self.locations["shard"].copy()))
        return {"file": files} | {name: self.locations[name].copy() for name in LOCATION_COLUMNS}


def schema_of(metadata: Mapping[bytes, bytes] | None) -> pa.Schema | None:
    """Return the schema of the samples from the metadata of clients.parquet, if it is there."""
    stored = (metadata or {}).get(_SAMPLES)
    return None if stored is None else pa.ipc.read_schema(pa.py_buffer(b64decode(stored)))


def _lists(counts: npt.NDArray[np.signedinteger]) -> pa.Array:
    bounds = np.arange(len(counts) + 1, dtype=np.int32) * counts.shape[1]
    return pa.ListArray.from_arrays(pa.array(bounds), pa.array(counts.ravel(), pa.int64()))
