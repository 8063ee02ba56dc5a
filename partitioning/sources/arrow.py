"""Arrow IPC files and streams."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias

import pyarrow as pa

from partitioning.common.columns import check_text
from partitioning.common.paths import open_regular, regular
from partitioning.sources.packed import check_batches
from partitioning.sources.source import Source, StreamedSource, reading, split_batch

Reader: TypeAlias = "pa.RecordBatchFileReader | pa.RecordBatchStreamReader"


def open_arrow(path: Path) -> Source:
    """Open an Arrow IPC file or stream, memory-mapped; every batch is validated before use.

    Uncompressed batches are views on the mapping. A compressed batch is decoded whole, if it is not too large.

    Raises:
        InputError: the file has no readable schema, or a compressed batch is too large.
    """
    with reading(path, "Arrow"), _open(path) as reader:
        schema = reader.schema
        check_batches(path, is_file=isinstance(reader, pa.RecordBatchFileReader))

    def read(names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        fields = [schema.get_field_index(name) for name in names]
        with reading(path, "Arrow"), _open(path, fields) as reader:
            rows = 0
            for batch in _batches(reader):
                selected = batch.select(names)
                _validate(selected, path.name, rows)
                rows += batch.num_rows
                yield from split_batch(selected)

    return StreamedSource(path.absolute().name, schema, read, path.stat().st_size)


def _validate(batch: pa.RecordBatch, name: str, first: int) -> None:
    """Raise ArrowInvalid for a damaged batch, and InputError for a text that is not UTF-8."""
    for place, column in enumerate(batch.columns):
        try:
            column.validate(full=True)
        except pa.ArrowInvalid as error:
            if "UTF8" in str(error):  # its offsets are sound
                check_text(batch.select([place]), name=name, first=first)
            raise


@contextmanager
def _open(path: Path, fields: Sequence[int] | None = None) -> Iterator[Reader]:
    # Public hubs store streams under the same suffix as files.
    with open_regular(path) as stream:
        is_file = stream.read(6) == b"ARROW1"
    options = pa.ipc.IpcReadOptions(included_fields=None if fields is None else list(fields))
    with pa.memory_map(str(regular(path))) as mapped:
        yield (pa.ipc.open_file if is_file else pa.ipc.open_stream)(mapped, options=options)


def _batches(reader: Reader) -> Iterator[pa.RecordBatch]:
    if isinstance(reader, pa.RecordBatchFileReader):
        for number in range(reader.num_record_batches):
            yield reader.get_batch(number)
    else:
        yield from reader
