"""The journal of a run: tables that grow by a batch a round, and survive whatever ends the run."""

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
    """Rows that are written as soon as they are appended: an Arrow stream, which becomes a Parquet file at the end.

    Args:
        path: its file.
        schema: of the rows.
        keep: how many of the batches that it has already stay; the others go.
    """

    def __init__(self, path: Path, schema: pa.Schema, keep: int = 0) -> None:
        self._path = path
        with write_whole(path) as aside:
            self._sink = pa.OSFile(str(aside), "wb")
            self._writer = pa.ipc.new_stream(self._sink, schema)
            for batch in islice(batches(path), keep):
                self._writer.write_batch(batch)
            # It takes the place of what checkpoints count on.
            sync(aside)

    def append(self, rows: pa.RecordBatch) -> None:
        """Write a batch; DiskFullError, and what was appended before stays, where it does not fit."""
        with self._up_to_here():
            self._writer.write_batch(rows)

    def sync(self) -> None:
        """Wait until what was appended would survive the machine."""
        sync(self._path)

    def finish(self) -> None:
        """Write what it holds to `NAME.parquet`, beside it."""
        self.close()
        with pa.OSFile(str(self._path)) as file, pa.ipc.open_stream(file) as stream:
            table = stream.read_all()
        with write_whole(self._path.with_suffix(".parquet")) as aside:
            pq.write_table(table, aside)

    def close(self) -> None:
        """Stop writing; what was appended stays."""
        if not self._sink.closed:
            # What was appended can be read without the mark of the end, for which there may be no room.
            with suppress(DiskFullError), self._up_to_here(), self._sink:
                self._writer.close()

    @contextmanager
    def _up_to_here(self) -> Iterator[None]:
        """Within, something is written; where it does not fit, the journal ends where it ended before."""
        whole = self._sink.tell()
        try:
            with report_full_disk(self._path):
                yield
        except DiskFullError:
            self._sink.close()
            os.truncate(self._path, whole)
            raise


def batches(path: Path) -> Iterator[pa.RecordBatch]:
    """The batches of a journal that are whole; what was being written when a run was killed is left out."""
    try:
        with pa.OSFile(str(path)) as file, pa.ipc.open_stream(file) as stream:
            while True:
                yield stream.read_next_batch()
    except (OSError, StopIteration, pa.ArrowException):
        return
