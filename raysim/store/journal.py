"""Journals: tables that grow by a batch per round and survive a crash."""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import inf
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from partitioning.common.disk import DiskFullError, report_full_disk, write_whole
from partitioning.common.paths import open_regular, regular
from raysim.common.errors import DamagedError

CHUNK = 2**20
"""Bytes read at once."""

GROUP = 1000
"""Batches that are joined at once."""

ROWS = 2**20
"""Rows that the end of a journal holds at once: a long run may have hundreds of millions."""


@dataclass(frozen=True)
class JournalMark:
    """Position in a journal, and the checksum of everything before it.

    Args:
        length: bytes before the position.
        checksum: crc32 of these bytes.
    """

    length: int = 0
    checksum: int = 0

    def after(self, content: bytes | memoryview) -> JournalMark:
        """Return the mark behind further bytes."""
        return JournalMark(self.length + len(content), zlib.crc32(content, self.checksum))

    def holds(self, path: Path) -> bool:
        """Return whether a file begins with the marked bytes; raise OSError if it exists but cannot be read."""
        found = JournalMark()
        if path.is_file():
            with open_regular(path) as file:
                while chunk := file.read(min(CHUNK, self.length - found.length)):
                    found = found.after(chunk)
        return found == self


class Journal:
    """Rows on disk as soon as they are appended: an Arrow stream that ends as a Parquet file.

    Args:
        path: file of the stream.
        schema: columns of the rows.
        mark: end of the rows to keep; by default the journal begins anew.

    Attributes:
        mark: end of the appended rows.

    Raises:
        DamagedError: the rows to keep are not those that were written.
    """

    def __init__(self, path: Path, schema: pa.Schema, mark: JournalMark = JournalMark()) -> None:
        self._path, self.mark = path, mark
        if mark.length and not mark.holds(path):
            raise DamagedError(f"{path} is damaged: its rows are not those that were written")
        self._file = path.open("r+b" if mark.length else "wb", buffering=0)
        self._file.truncate(mark.length)
        self._file.seek(mark.length)
        if not mark.length:
            self._write(schema.serialize())
        # Checkpoints rely on the file.
        self.sync()

    def append(self, rows: pa.RecordBatch) -> None:
        """Write a batch; if the disk is full, raise DiskFullError and keep the earlier batches."""
        self._write(rows.serialize())

    def sync(self) -> None:
        """Wait until the appended rows would survive a power failure."""
        os.fsync(self._file)

    def check(self) -> None:
        """Raise DamagedError if the journal is not as it was written."""
        whole = self._path.is_file() and self._path.stat().st_size == self.mark.length
        if not whole or not self.mark.holds(self._path):
            raise DamagedError(f"{self._path} is damaged: its rows are not those that were written")

    def finish(self) -> None:
        """Write all rows to `NAME.parquet` beside the journal.

        Raises:
            DamagedError: the journal is not as it was written.
        """
        self.close()
        self.check()
        with (
            pa.OSFile(str(regular(self._path))) as file,
            pa.ipc.open_stream(file) as stream,
            write_whole(self._path.with_suffix(".parquet")) as aside,
            pq.ParquetWriter(aside, stream.schema) as writer,
        ):
            for table in _tables(stream, ROWS):
                writer.write_table(table)

    def close(self) -> None:
        """Stop writing; the rows stay."""
        self._file.close()

    def _write(self, message: pa.Buffer) -> None:
        left = memoryview(message)
        after = self.mark.after(left)
        try:
            with report_full_disk(self._path):
                while left:
                    left = left[self._file.write(left) :]
        except DiskFullError:
            self._file.truncate(self.mark.length)
            self.close()
            raise
        self.mark = after


def joined(rounds: Iterable[pa.RecordBatch], schema: pa.Schema) -> pa.Table:
    """Return the rows of many small batches as one chunk; a batch that is kept takes ten kilobytes of memory."""
    return pa.concat_tables([schema.empty_table(), *_tables(rounds, inf)]).combine_chunks()


def _tables(rounds: Iterable[pa.RecordBatch], most: float) -> Iterator[pa.Table]:
    """Yield the rows of many small batches as tables of one chunk, and of `most` rows or a batch more."""
    waiting, parts, rows = list[pa.RecordBatch](), list[pa.Table](), 0
    for batch in rounds:
        waiting.append(batch)
        rows += batch.num_rows
        if len(waiting) == GROUP or rows >= most:
            parts.append(pa.Table.from_batches(waiting).combine_chunks())
            waiting = []
        if rows >= most:
            yield pa.concat_tables(parts).combine_chunks()
            parts, rows = [], 0
    if waiting:
        parts.append(pa.Table.from_batches(waiting))
    if parts:
        yield pa.concat_tables(parts).combine_chunks()


def batches(path: Path) -> Iterator[pa.RecordBatch]:
    """Yield the complete batches of a journal that may still grow; leave out one that a crash cut off or damaged."""
    try:
        with pa.OSFile(str(regular(path))) as file, pa.ipc.open_stream(file) as stream:
            while True:
                batch = stream.read_next_batch()
                batch.validate(full=True)
                yield batch
    except (OSError, StopIteration, pa.ArrowException):
        return
