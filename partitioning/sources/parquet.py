"""Parquet files."""

from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from partitioning.sources.source import BATCH_BYTES, reading

if TYPE_CHECKING:
    from pyarrow.parquet import FileMetaData, ParquetFile

_ROWS = 2**16
_BUFFER = 2**20  # bytes read at once of a column: Arrow would else hold whole column chunks
_LEVELS = 4  # bytes that say how deep a value is nested
_WIDTHS = {"BOOLEAN": 1, "INT32": 4, "INT64": 8, "INT96": 12, "FLOAT": 4, "DOUBLE": 8}


class ParquetSource:
    """A Parquet file; only what a batch needs is decoded, whatever the size of its row groups."""

    def __init__(self, path: Path) -> None:
        """Read the file's schema; raises InputError where it has none."""
        self._path = path
        self.name = path.absolute().name
        with reading(path, "Parquet"), _open(path) as file:
            self.schema: pa.Schema = file.schema_arrow
            self._rows = _rows_at_once(file.metadata)

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """Give all rows in order; columns that are not asked for are not decoded."""
        names = self.schema.names if columns is None else list(columns)
        with reading(self._path, "Parquet"), _open(self._path) as file:
            for batch in file.iter_batches(self._rows, columns=names):
                yield batch.select(names)  # Parquet's names are prefixes: "a" reads the column "a.b" too


def _open(path: Path) -> "ParquetFile":
    from pyarrow.parquet import ParquetFile

    return ParquetFile(path, pre_buffer=False, buffer_size=_BUFFER)


def _rows_at_once(metadata: "FileMetaData") -> int:
    # By what decoding takes, not by what comes of it: a byte in a list is a whole INT32 and two levels on the way.
    held = 0
    for group, column in product(range(metadata.num_row_groups), range(metadata.num_columns)):
        chunk, form = metadata.row_group(group).column(column), metadata.schema.column(column)
        width = form.length or _WIDTHS.get(form.physical_type, 0)
        held += chunk.total_uncompressed_size + chunk.num_values * (width + _LEVELS)
    row_bytes = held // max(metadata.num_rows, 1)
    return min(_ROWS, max(1, int(BATCH_BYTES // max(row_bytes, 1))))
