"""clients.parquet: one row a client, in id order, that says what it has and where its samples are."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from partitioning.checks import Integers
from partitioning.errors import InputError
from partitioning.files import Section, StoredFile
from partitioning.splits import TEST, TRAIN

SCHEMA = pa.schema(
    [
        ("client", pa.int64()),
        ("split", pa.string()),
        ("site", pa.string()),
        ("n", pa.int64()),
        ("n_test", pa.int64()),
        ("class_counts", pa.list_(pa.int64())),
        ("file", pa.string()),
        ("batch", pa.int64()),
        ("checksum", pa.uint32()),
        ("offset", pa.int64()),
        ("length", pa.int64()),
    ]
)


@dataclass(frozen=True)
class ClientTable:
    """The columns of clients.parquet as arrays [K]; `shard` is a file's place in the manifest's list."""

    split: npt.NDArray[np.str_]
    n: Integers
    n_test: Integers
    class_counts: Integers  # [K, C]
    shard: Integers
    batch: Integers
    checksum: Integers
    offset: Integers
    length: Integers

    def __len__(self) -> int:
        return self.n.size

    def section(self, client: int) -> Section:
        """Return where a client's record batch is in its file."""
        return Section(*(int(column[client]) for column in (self.n, self.offset, self.length, self.checksum)))

    def to_arrow(self, shards: Sequence[StoredFile]) -> pa.Table:
        """Return the table that is written, with file names in place of numbers."""
        clients, classes = self.class_counts.shape
        bounds = pa.array(np.arange(clients + 1, dtype=np.int32) * classes)
        special = {
            "client": np.arange(clients),
            "site": pa.nulls(clients, pa.string()),
            "class_counts": pa.ListArray.from_arrays(bounds, self.class_counts.ravel()),
            "file": pa.array([shard.name for shard in shards], pa.string()).take(pa.array(self.shard)),
        }
        columns = [special.get(name, getattr(self, name, None)) for name in SCHEMA.names]
        return pa.table(dict(zip(SCHEMA.names, columns, strict=True)), schema=SCHEMA)

    @classmethod
    def from_arrow(cls, table: pa.Table, shards: Sequence[StoredFile], classes: int) -> "ClientTable":
        """Read a table; raises InputError where it is not in the form that `to_arrow` writes."""
        for field in SCHEMA:
            if field.name not in table.column_names or table.schema.field(field.name).type != field.type:
                raise InputError(f"clients.parquet has no column {field.name!r} of type {field.type}")
            if field.name != "site" and table.column(field.name).null_count:
                raise InputError(f"clients.parquet has missing values in column {field.name!r}")
        places = {shard.name: place for place, shard in enumerate(shards)}
        counts = table.column("class_counts").combine_chunks()
        if not np.all(counts.value_lengths().to_numpy(zero_copy_only=False) == classes):
            raise InputError(f"clients.parquet does not count {classes} classes for every client")
        special: dict[str, Any] = {
            "split": np.array(table.column("split").to_pylist(), dtype=np.str_),
            "class_counts": counts.flatten().to_numpy().reshape(-1, classes),
            "shard": np.array([places.get(name, -1) for name in table.column("file").to_pylist()], np.int64),
        }
        if not np.array_equal(table.column("client").to_numpy(), np.arange(table.num_rows)):
            raise InputError("clients.parquet does not number its clients 0, 1, 2, ...")
        plain = {field.name for field in fields(cls)} - set(special)
        clients = cls(**special, **{name: table.column(name).to_numpy().astype(np.int64) for name in plain})
        clients._check(shards)
        return clients

    def _check(self, shards: Sequence[StoredFile]) -> None:
        if self.shard.min(initial=0) < 0:
            raise InputError("clients.parquet names a file that is not in the manifest")
        ends = np.array([shard.end for shard in shards])[self.shard]
        starts = np.array([shard.start for shard in shards])[self.shard]
        batches = np.array([shard.batches for shard in shards])[self.shard]
        sound = {
            "split": np.isin(self.split, (TRAIN, TEST)),
            "n": self.n == self.class_counts.sum(axis=1),
            "n_test": (self.n_test >= 0) & (self.n_test <= self.n),
            "class_counts": (self.class_counts >= 0).all(axis=1),
            "batch": (self.batch >= 0) & (self.batch < batches),
            "offset": (self.offset >= starts) & (self.length >= 0) & (self.offset + self.length <= ends),
        }
        for name, rows in sound.items():
            if not rows.all():
                raise InputError(f"clients.parquet has a wrong {name!r} for client {int(np.argmin(rows))}")
