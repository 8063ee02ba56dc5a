"""clients.parquet: one row a client, in id order, that says what it has and where its samples are."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from partitioning.checks import Integers
from partitioning.columns import class_codes
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
_SPLITS = (TRAIN, TEST)
_PLAIN = ("client", "n", "n_test", "batch", "checksum", "offset", "length")  # plain numbers


@dataclass(frozen=True)
class ClientTable:
    """The columns of clients.parquet as arrays [K], compact because every process of a run holds them.

    `shard` is a file's place in the manifest's list.
    """

    held_out: npt.NDArray[np.bool_]
    n: Integers
    n_test: Integers
    class_counts: npt.NDArray[np.signedinteger]  # [K, C], of the narrowest type that holds them
    shard: npt.NDArray[np.int32]
    batch: npt.NDArray[np.int32]
    checksum: npt.NDArray[np.uint32]
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
            "split": pa.array(_SPLITS).take(pa.array(self.held_out.astype(np.int8))),
            "site": pa.nulls(clients, pa.string()),
            "class_counts": pa.ListArray.from_arrays(bounds, pa.array(self.class_counts.ravel(), pa.int64())),
            "file": pa.array([shard.name for shard in shards], pa.string()).take(pa.array(self.shard)),
        }
        columns = [special.get(name, getattr(self, name, None)) for name in SCHEMA.names]
        return pa.table(dict(zip(SCHEMA.names, columns, strict=True)), schema=SCHEMA)

    @classmethod
    def from_batches(
        cls, batches: Iterable[pa.RecordBatch], shards: Sequence[StoredFile], classes: int
    ) -> "ClientTable":
        """Read a table; raises InputError where it is not in the form that `to_arrow` writes.

        Each batch is checked and made compact before the next is read, so that the whole is never held wide.
        """
        parts = [_read(pa.RecordBatch.from_pylist([], SCHEMA), 0, shards, classes)]  # of an empty table, all
        first = 0
        for batch in batches:
            parts.append(_read(batch, first, shards, classes))
            first += batch.num_rows
        names = [field.name for field in fields(cls)]
        return cls(**{name: np.concatenate([getattr(part, name) for part in parts]) for name in names})


def _read(batch: pa.RecordBatch, first: int, shards: Sequence[StoredFile], classes: int) -> ClientTable:
    # The clients of one batch, of which `first` is the id of the first.
    _check_form(batch, classes)
    columns = {
        "split": class_codes(batch.column("split"), _SPLITS),
        "class_counts": batch.column("class_counts").flatten().to_numpy().reshape(-1, classes),
        "shard": class_codes(batch.column("file"), [shard.name for shard in shards]),
        **{name: batch.column(name).to_numpy() for name in _PLAIN},
    }
    _check_values(columns, first, shards)
    return _compact(columns)


def _check_form(batch: pa.RecordBatch, classes: int) -> None:
    for field in SCHEMA:
        if field.name not in batch.schema.names or batch.schema.field(field.name).type != field.type:
            raise InputError(f"clients.parquet has no column {field.name!r} of type {field.type}")
        if field.name != "site" and batch.column(field.name).null_count:
            raise InputError(f"clients.parquet has missing values in column {field.name!r}")
    lengths = batch.column("class_counts").value_lengths()
    if not np.all(lengths.to_numpy(zero_copy_only=False) == classes):
        raise InputError(f"clients.parquet does not count {classes} classes for every client")


def _check_values(columns: Mapping[str, Integers], first: int, shards: Sequence[StoredFile]) -> None:
    if not np.array_equal(columns["client"], np.arange(first, first + columns["client"].size)):
        raise InputError("clients.parquet does not number its clients 0, 1, 2, ...")
    if columns["shard"].min(initial=0) < 0:
        raise InputError("clients.parquet names a file that is not in the manifest")
    starts, ends, batches = (
        np.array([getattr(shard, name) for shard in shards])[columns["shard"]] for name in ("start", "end", "batches")
    )
    n, n_test, counts, batch = (columns[name] for name in ("n", "n_test", "class_counts", "batch"))
    offset, length = columns["offset"], columns["length"]
    sound = {
        "split": columns["split"] >= 0,
        "n": n == counts.sum(axis=1),
        "n_test": (n_test >= 0) & (n_test <= n),
        "class_counts": (counts >= 0).all(axis=1),
        "batch": (batch >= 0) & (batch < batches),
        "offset": (offset >= starts) & (length >= 0) & (offset + length <= ends),
    }
    for name, rows in sound.items():
        if not rows.all():
            raise InputError(f"clients.parquet has a wrong {name!r} for client {first + int(np.argmin(rows))}")


def _compact(columns: Mapping[str, Integers]) -> ClientTable:
    counts = columns["class_counts"]
    return ClientTable(
        held_out=columns["split"] == _SPLITS.index(TEST),
        n=columns["n"],
        n_test=columns["n_test"],
        class_counts=counts.astype(np.min_scalar_type(-1 - counts.max(initial=0))),
        shard=columns["shard"].astype(np.int32),
        batch=columns["batch"].astype(np.int32),
        checksum=columns["checksum"].astype(np.uint32),
        offset=columns["offset"],
        length=columns["length"],
    )
