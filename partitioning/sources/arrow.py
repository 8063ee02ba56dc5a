"""Arrow IPC files and streams."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias

import pyarrow as pa

from partitioning.sources.source import pieces, reading

Reader: TypeAlias = "pa.RecordBatchFileReader | pa.RecordBatchStreamReader"


class ArrowSource:
    """An Arrow IPC file or stream, memory-mapped; every batch is validated before it is used.

    Uncompressed batches are views on the mapping. A compressed one is decoded whole, however large it is.
    """

    def __init__(self, path: Path) -> None:
        """Read the file's schema; raises InputError where it has none."""
        self._path = path
        self.name = path.absolute().name
        with reading(path, "Arrow"), _open(path) as reader:
            self.schema: pa.Schema = reader.schema

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """Give all rows in order; columns that are not asked for are not decoded."""
        names = self.schema.names if columns is None else list(columns)
        fields = [self.schema.get_field_index(name) for name in names]
        with reading(self._path, "Arrow"), _open(self._path, fields) as reader:
            for batch in _stored(reader):
                selected = batch.select(names)
                selected.validate(full=True)
                yield from pieces(selected)


@contextmanager
def _open(path: Path, fields: Sequence[int] | None = None) -> Iterator[Reader]:
    # Public hubs write streams under the same suffix as files.
    with path.open("rb") as stream:
        is_file = stream.read(6) == b"ARROW1"
    options = pa.ipc.IpcReadOptions(included_fields=None if fields is None else list(fields))
    with pa.memory_map(str(path)) as mapped:
        yield (pa.ipc.open_file if is_file else pa.ipc.open_stream)(mapped, options=options)


def _stored(reader: Reader) -> Iterator[pa.RecordBatch]:
    if isinstance(reader, pa.RecordBatchFileReader):
        for number in range(reader.num_record_batches):
            yield reader.get_batch(number)
    else:
        yield from reader
