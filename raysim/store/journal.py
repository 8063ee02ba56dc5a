"""Journals: tables that grow by a batch per round and survive a crash."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from partitioning.common.disk import DiskFullError, report_full_disk, write_whole
from raysim.common.files import sync


class Journal:
    """Rows on disk as soon as they are appended: an Arrow stream that ends as a Parquet file.

    Args:
        path: file of the stream.
        schema: columns of the rows.
        keep: number of existing batches to keep; later ones are dropped.
    """

    def __init__(self, path: Path, schema: pa.Schema, keep: int = 0) -> None:
        self._path = path
        with write_whole(path) as aside:
            self._sink = pa.OSFile(str(aside), "wb")
            self._writer = pa.ipc.new_stream(self._sink, schema)
            for batch in islice(batches(path), keep):
                self._writer.write_batch(batch)
            # Checkpoints rely on the file that this one replaces.
            sync(aside)

    def append(self, rows: pa.RecordBatch) -> None:
        """Write a batch; if the disk is full, raise DiskFullError and keep the earlier batches."""
        with self._undoing():
            self._writer.write_batch(rows)

    def sync(self) -> None:
        """Wait until the appended rows would survive a power failure."""
        sync(self._path)

    def finish(self) -> None:
        """Write all rows to `NAME.parquet` beside the journal."""
        self.close()
        with pa.OSFile(str(self._path)) as file, pa.ipc.open_stream(file) as stream:
            table = stream.read_all()
        with write_whole(self._path.with_suffix(".parquet")) as aside:
            pq.write_table(table, aside)

    def close(self) -> None:
        """Stop writing; the rows stay."""
        if not self._sink.closed:
            # The rows can be read without the end mark, which may find no room.
            with suppress(DiskFullError), self._undoing(), self._sink:
                self._writer.close()

    @contextmanager
    def _undoing(self) -> Iterator[None]:
        """Cut off a write that finds no room."""
        whole = self._sink.tell()
        try:
            with report_full_disk(self._path):
                yield
        except DiskFullError:
            self._sink.close()
            os.truncate(self._path, whole)
            raise


def batches(path: Path) -> Iterator[pa.RecordBatch]:
    """Yield the complete batches of a journal; a batch that a crash cut off is left out."""
    try:
        with pa.OSFile(str(path)) as file, pa.ipc.open_stream(file) as stream:
            while True:
                yield stream.read_next_batch()
    except (OSError, StopIteration, pa.ArrowException):
        return
