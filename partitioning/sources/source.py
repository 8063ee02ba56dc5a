"""What a source is, and what all kinds share."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import pyarrow as pa

from partitioning.common.errors import InputError

BATCH_BYTES = 16 * 2**20
"""About the most that a batch of a source holds, unless one of its rows, or a block of its file, holds more."""


class Source(Protocol):
    """Samples that can be read more than once, in the same order each time."""

    @property
    def name(self) -> str:
        """What the manifest calls it."""

    @property
    def schema(self) -> pa.Schema:
        """Its columns."""

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """Give all rows in order, in bounded pieces, with these columns or all; raises InputError where damaged."""


@dataclass(frozen=True)
class TableSource:
    """A table in memory."""

    table: pa.Table
    name: str = "table"

    @property
    def schema(self) -> pa.Schema:
        """The table's columns."""
        return self.table.schema

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """Give the table's own batches, without a copy."""
        yield from self.table.select(self.schema.names if columns is None else columns).to_batches()


def read_columns(source: Source, names: Sequence[str] | None = None) -> pa.Table:
    """Read these columns of a source, or all, into memory."""
    chosen = source.schema.names if names is None else names
    schema = pa.schema([source.schema.field(name) for name in chosen], metadata=source.schema.metadata)
    return pa.Table.from_batches(source.batches(names), schema=schema)


@contextmanager
def reading(path: Path, form: str) -> Iterator[None]:
    """Turn what Arrow and the machine say of an unreadable file into an InputError that names the file."""
    try:
        yield
    except pa.ArrowMemoryError as error:
        raise InputError(
            f"{path} asks for more memory than there is ({error}): export it again, in smaller batches"
        ) from error
    except InputError:
        raise
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} cannot be read as {form} ({error}): export it again") from error


def pieces(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Cut a batch into views of about `BATCH_BYTES`."""
    rows = max(1, BATCH_BYTES * batch.num_rows // record_bytes(batch))
    for start in range(0, batch.num_rows, rows):
        yield batch.slice(start, rows)


def record_bytes(batch: pa.RecordBatch) -> int:
    """Return the bytes of a batch in an Arrow file, its dictionaries left out: those are there once."""
    size: int = pa.ipc.get_record_batch_size(batch)
    return size
