"""Parquet files."""

from collections.abc import Iterator, Sequence
from itertools import pairwise, product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from partitioning.common.bounds import MAX_BATCH_BYTES, check_bound, check_column_count, check_memory, check_row_count
from partitioning.common.paths import regular
from partitioning.sources.source import BATCH_BYTES, Source, StreamedSource, reading

if TYPE_CHECKING:
    from pyarrow.parquet import FileMetaData, ParquetFile

_ROWS = 2**16
_BUFFER = 2**20  # bytes read at once of a column; without it, Arrow holds whole column chunks
_LEVELS = 4  # bytes of a value's nesting levels while it is decoded
_PAGE = 2**31  # most bytes of a page, the part of a column that is unpacked as a whole
_WIDTHS = {"BOOLEAN": 1, "INT32": 4, "INT64": 8, "INT96": 12, "FLOAT": 4, "DOUBLE": 8}


def open_parquet(path: Path) -> Source:
    """Open a Parquet file; each batch decodes only its own rows, whatever the size of the row groups.

    Raises:
        InputError: the file has no readable schema.
    """
    with reading(path, "Parquet"), open_file(path) as file:
        schema, rows = file.schema_arrow, rows_at_once(path, file)
        encoded = encoded_columns(file.metadata)
        groups = groups_at_once(file.metadata, encoded)

    def read(names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        wanted = pa.schema([schema.field(name) for name in names])
        with reading(path, "Parquet"), open_file(path, encoded) as file:
            for group in groups:
                for batch in file.iter_batches(rows, group, columns=names):
                    # Parquet takes names as prefixes: "a" also reads the column "a.b".
                    for part in _decodable(str(path), batch.select(names)):
                        yield part.cast(wanted) if encoded else part

    return StreamedSource(path.absolute().name, schema, read, path.stat().st_size)


def open_file(path: Path, encoded: Sequence[str] = ()) -> "ParquetFile":
    """Open a Parquet file whose columns are read in pieces; values of the `encoded` ones stay in dictionaries."""
    from pyarrow.parquet import ParquetFile

    return ParquetFile(regular(path), read_dictionary=encoded, pre_buffer=False, buffer_size=_BUFFER)


def encoded_columns(metadata: "FileMetaData") -> list[str]:
    """Return the columns whose values may stand in a dictionary, from where a few bytes of the file repeat a long one.

    They are read with their dictionary, because the footer does not tell how long their values are.
    """
    columns = [metadata.schema.column(number) for number in range(metadata.num_columns)]
    return [
        form.path
        for number, form in enumerate(columns)
        if form.physical_type == "BYTE_ARRAY" and not form.max_repetition_level
        if any(_may_repeat(metadata.row_group(group).column(number)) for group in range(metadata.num_row_groups))
    ]


def groups_at_once(metadata: "FileMetaData", encoded: Sequence[str]) -> list[list[int]]:
    """Return the row groups to read by one call, if some columns are encoded (see `encoded_columns`).

    Each row group has a dictionary of its own, and Arrow cannot read several for a value within a struct.
    """
    groups = list(range(metadata.num_row_groups))
    columns = (metadata.schema.column(number) for number in range(metadata.num_columns))
    nested = any(column.path in encoded and column.path != column.name for column in columns)
    return [[group] for group in groups] if nested else [groups]


def _may_repeat(chunk: Any) -> bool:
    """Return whether a batch of a column chunk may be too large if each value is as long as the whole chunk."""
    rows = min(_ROWS, chunk.num_values)
    return bool(chunk.has_dictionary_page) and rows * chunk.total_uncompressed_size > MAX_BATCH_BYTES


def _decodable(where: str, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Cut a batch into parts of about `BATCH_BYTES` after their dictionaries are decoded."""
    sizes = sum((decoded_sizes(column) for column in batch.columns), np.zeros(batch.num_rows, np.int64))
    check_bound(where, "bytes a row", int(sizes.max(initial=0)), "MAX_ROW_BYTES", "make its texts shorter")
    part = np.cumsum(sizes) // BATCH_BYTES
    for start, stop in pairwise([0, *(np.flatnonzero(np.diff(part)) + 1).tolist(), batch.num_rows]):
        yield batch.slice(start, stop - start)


def decoded_sizes(column: pa.Array) -> npt.NDArray[np.int64]:
    """Return the bytes of each value that stands in a dictionary; 0 for other values."""
    if isinstance(column, pa.StructArray):
        return sum((decoded_sizes(part) for part in column.flatten()), np.zeros(len(column), np.int64))
    texts = (pa.types.is_string, pa.types.is_binary, pa.types.is_large_string, pa.types.is_large_binary)
    if not isinstance(column, pa.DictionaryArray) or not any(test(column.type.value_type) for test in texts):
        return np.zeros(len(column), np.int64)
    lengths = pc.binary_length(column.dictionary).take(column.indices)
    return np.asarray(pc.fill_null(lengths, 0).to_numpy(zero_copy_only=False), np.int64)


def rows_at_once(path: Path, file: "ParquetFile") -> int:
    """Return the rows of a batch of about `BATCH_BYTES`; raise an error as `decoded_bytes` does."""
    row_bytes = decoded_bytes(path, file) // max(file.metadata.num_rows, 1)
    return min(_ROWS, max(1, int(BATCH_BYTES // max(row_bytes, 1))))


def decoded_bytes(path: Path, file: "ParquetFile") -> int:
    """Return the memory for decoding all rows, by the footer.

    Raises:
        InputError: the file is beyond a bound.
        OSError, pyarrow.ArrowInvalid: the footer of a column is damaged.
    """
    metadata = file.metadata
    check_row_count(str(path), metadata.num_rows)
    check_column_count(str(path), metadata.num_columns)
    groups = range(metadata.num_row_groups if metadata.num_columns else 0)
    for group in groups:
        # Arrow ends the process if a damaged footer of a column is looked up, but raises an error if it reads no rows;
        # of a table without columns, it divides by these rows and ends the process.
        next(file.reader.iter_batches(0, row_groups=[group], column_indices=None, use_threads=False), None)
    # Count the memory of decoding, not of the result: a byte in a list is decoded as an INT32 with two levels.
    held = largest = 0
    for group, column in product(groups, range(metadata.num_columns)):
        chunk, form = metadata.row_group(group).column(column), metadata.schema.column(column)
        width = form.length or _WIDTHS.get(form.physical_type, 0)
        held += chunk.total_uncompressed_size + chunk.num_values * (width + _LEVELS)
        largest = max(largest, min(chunk.total_uncompressed_size, _PAGE))
    row_bytes = held // max(metadata.num_rows, 1)
    check_bound(str(path), "bytes a row", row_bytes, "MAX_ROW_BYTES", "make its texts or lists shorter")
    check_memory(f"a page of {path}", largest)
    return held
