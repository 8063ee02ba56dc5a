"""Parquet files."""

from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from partitioning.sources.source import BATCH_BYTES, Source, StreamedSource, reading

if TYPE_CHECKING:
    from pyarrow.parquet import FileMetaData, ParquetFile

_ROWS = 2**16
_BUFFER = 2**20  # bytes read at once of a column; without it, Arrow holds whole column chunks
_LEVELS = 4  # bytes of a value's nesting levels while it is decoded
_WIDTHS = {"BOOLEAN": 1, "INT32": 4, "INT64": 8, "INT96": 12, "FLOAT": 4, "DOUBLE": 8}


def open_parquet(path: Path) -> Source:
    """Open a Parquet file; each batch decodes only its own rows, whatever the size of the row groups.

    Raises:
        InputError: the file has no readable schema.
    """
    with reading(path, "Parquet"), _open(path) as file:
        schema, rows = file.schema_arrow, _rows_at_once(file.metadata)

    def read(names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        with reading(path, "Parquet"), _open(path) as file:
            for batch in file.iter_batches(rows, columns=names):
                yield batch.select(names)  # Parquet takes names as prefixes: "a" also reads the column "a.b"

    return StreamedSource(path.absolute().name, schema, read)


def _open(path: Path) -> "ParquetFile":
    from pyarrow.parquet import ParquetFile

    return ParquetFile(path, pre_buffer=False, buffer_size=_BUFFER)


def _rows_at_once(metadata: "FileMetaData") -> int:
    # Count the memory of decoding, not of the result: a byte in a list is decoded as an INT32 with two levels.
    held = 0
    for group, column in product(range(metadata.num_row_groups), range(metadata.num_columns)):
        chunk, form = metadata.row_group(group).column(column), metadata.schema.column(column)
        width = form.length or _WIDTHS.get(form.physical_type, 0)
        held += chunk.total_uncompressed_size + chunk.num_values * (width + _LEVELS)
    row_bytes = held // max(metadata.num_rows, 1)
    return min(_ROWS, max(1, int(BATCH_BYTES // max(row_bytes, 1))))
