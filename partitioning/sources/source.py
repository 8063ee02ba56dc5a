"""The protocol of a source, the sources in memory and on demand, and helpers of all readers."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import pyarrow as pa

from partitioning.common.bounds import check_column_count, check_expansion, check_row_count
from partitioning.common.columns import repeated
from partitioning.common.errors import InputError, excerpt
from partitioning.common.unreadable import UNREADABLE

BATCH_BYTES = 16 * 2**20
"""Approximate limit of a batch in bytes; a single larger row, or a larger block of the file, exceeds it."""

FEW_NAMES = 4
"""Most columns that an error message about two tables lists of each."""


class Source(Protocol):
    """Samples that can be read repeatedly, in the same order each time."""

    @property
    def name(self) -> str:
        """Name of the source in the manifest."""

    @property
    def schema(self) -> pa.Schema:
        """Columns of every batch."""

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """Yield all rows in order, in bounded batches.

        Args:
            columns: names of the columns to read; None reads all.

        Raises:
            InputError: the source is damaged.
        """


@dataclass(frozen=True)
class TableSource:
    """A table in memory."""

    table: pa.Table
    name: str = "table"

    @property
    def schema(self) -> pa.Schema:
        """Columns of the table."""
        return self.table.schema

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """Yield the table's own batches, without a copy."""
        yield from self.table.select(self.schema.names if columns is None else columns).to_batches()


@dataclass(frozen=True)
class StreamedSource:
    """Samples that a function reads batch by batch, for example from a file.

    Args:
        name: name of the source in the manifest.
        schema: columns of every batch.
        read: function from column names to an iterator over all rows with these columns.
        stored: bytes of the file if few of them may decode to many, else None.
    """

    name: str
    schema: pa.Schema
    read: Callable[[Sequence[str]], Iterator[pa.RecordBatch]]
    stored: int | None = None

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """Yield all rows in order; columns that are not requested are not decoded."""
        check_column_count(self.name, len(self.schema))
        rows = decoded = 0
        for batch in self.read(self.schema.names if columns is None else list(columns)):
            rows += batch.num_rows
            check_row_count(self.name, rows)
            if self.stored is not None:
                decoded += record_bytes(batch)
                check_expansion(self.name, decoded, self.stored)
            yield batch


def read_columns(source: Source, names: Sequence[str] | None = None) -> pa.Table:
    """Read the named columns of a source into memory; None reads all; raise InputError if two have one name."""
    chosen = source.schema.names if names is None else names
    wanted = set(chosen)
    if (twice := repeated(name for name in source.schema.names if name in wanted)) is not None:
        raise InputError(f"{source.name} has several columns named {twice!r}: rename them")
    schema = pa.schema([source.schema.field(name) for name in chosen], metadata=source.schema.metadata)
    return pa.Table.from_batches(source.batches(names), schema=schema)


@contextmanager
def reading(path: Path, form: str) -> Iterator[None]:
    """Turn errors of Arrow and of the system into an InputError that names the file and its format."""
    try:
        yield
    except pa.ArrowMemoryError as error:
        raise InputError(
            f"{path} needs more memory than there is ({error}): export it again in smaller batches"
        ) from error
    except InputError:
        raise
    except UNREADABLE as error:
        raise InputError(f"{path} cannot be read as {form} ({error}): export it again") from error


def split_batch(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Cut a batch into views of about `BATCH_BYTES`."""
    rows = max(1, BATCH_BYTES * batch.num_rows // record_bytes(batch))
    for start in range(0, batch.num_rows, rows):
        yield batch.slice(start, rows)


def record_bytes(batch: pa.RecordBatch) -> int:
    """Return the size of a batch in an Arrow file, without its dictionaries."""
    size: int = pa.ipc.get_record_batch_size(batch)
    return size


def difference(schema: pa.Schema, other: pa.Schema) -> str:
    """Return the first difference of a table's columns from another's for an error message; "" if there is none."""
    more, fewer = ([n for n in one.names if n not in two.names] for one, two in ((schema, other), (other, schema)))
    if more or fewer:
        found = {f"has the column{'s' if more[1:] else ''}": more, "lacks": fewer}
        return " and ".join(f"{verb} {excerpt(names, FEW_NAMES)}" for verb, names in found.items() if names)
    kinds = {field.name: field.type for field in other}
    for field in schema:
        if field.type != kinds[field.name]:
            return f"has the column {field.name!r} as {field.type} instead of {kinds[field.name]}"
    return "" if schema.names == other.names else "has the columns in another order"
