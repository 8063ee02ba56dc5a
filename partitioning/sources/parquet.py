"""Parquet files."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from partitioning.sources.source import BATCH_BYTES, reading

if TYPE_CHECKING:
    from pyarrow.parquet import FileMetaData, ParquetFile

_ROWS = 2**16
_BUFFER = 2**20  # bytes read at once of a column: Arrow would else hold whole column chunks


class ParquetSource:
    """A Parquet file; only what a batch needs is decoded, whatever the size of its row groups."""

    def __init__(self, path: Path) -> None:
        """Read the file's schema; raises InputError where it has none."""
        self._path = path
        self.name = path.absolute().name
        with reading(path, "Parquet"), _open(path) as file:
            self.schema: pa.Schema = file.schema_arrow
            self._rows = _rows_at_once(self.schema, file.metadata)

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """Give all rows in order; columns that are not asked for are not decoded."""
        names = self.schema.names if columns is None else list(columns)
        with reading(self._path, "Parquet"), _open(self._path) as file:
            for batch in file.iter_batches(self._rows, columns=names):
                yield batch.select(names)  # Parquet's names are prefixes: "a" reads the column "a.b" too


def _open(path: Path) -> "ParquetFile":
    from pyarrow.parquet import ParquetFile

    return ParquetFile(path, pre_buffer=False, buffer_size=_BUFFER)


def _rows_at_once(schema: pa.Schema, metadata: "FileMetaData") -> int:
    # Encoded values may be smaller than decoded ones, and text has no width: the larger of both is meant to hold.
    encoded = sum(metadata.row_group(number).total_byte_size for number in range(metadata.num_row_groups))
    row_bytes = max(encoded // max(metadata.num_rows, 1), sum(_width(field.type) for field in schema), 1)
    return min(_ROWS, max(1, int(BATCH_BYTES // row_bytes)))


def _width(kind: pa.DataType) -> int:
    # bytes of one value; 0 for what has no fixed width
    if isinstance(kind, pa.BaseExtensionType):
        return _width(kind.storage_type)
    if pa.types.is_fixed_size_list(kind):
        return int(kind.list_size) * _width(kind.value_type)
    if pa.types.is_struct(kind):
        return sum(_width(field.type) for field in kind)
    return int(kind.byte_width) if pa.types.is_primitive(kind) and not pa.types.is_boolean(kind) else 0
