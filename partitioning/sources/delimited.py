"""Delimited text: CSV and TSV."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from partitioning.common.bounds import check_column_count
from partitioning.common.columns import check_text
from partitioning.common.errors import InputError
from partitioning.common.paths import open_regular, regular
from partitioning.sources.source import Source, StreamedSource, reading

if TYPE_CHECKING:
    from pyarrow.csv import CSVStreamingReader

_FORM = "delimited text"
_BLOCK = 4 * 2**20  # bytes parsed at once; the first block decides the columns' types
_MISFIT = re.compile(r"In CSV column #(\d+): .*conversion error to (\S+): (.*)", re.DOTALL)


def open_delimited(path: Path) -> Source:
    """Open a .csv or .tsv file: its first line names the columns, its first block decides their types.

    Reading raises InputError if a line is ragged or a value is of another type.

    Raises:
        InputError: the first block is no table.
    """
    with reading(path, _FORM), _open(path) as reader:
        schema = reader.schema

    def read(names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        with reading(path, _FORM), _open(path) as reader:
            try:
                rows = 0
                for batch in reader:
                    selected = batch.select(names)
                    # Arrow reads a column as bytes if it is no text.
                    check_text(selected, name=path.name, first=rows, is_text=True)
                    rows += batch.num_rows
                    yield selected
            except pa.ArrowInvalid as error:
                misfit = _MISFIT.search(str(error))
                if misfit is None:
                    raise
                raise _misfit_error(path, schema, *misfit.groups()) from error

    return StreamedSource(path.absolute().name, schema, read)


def _open(path: Path) -> "CSVStreamingReader":
    from pyarrow import csv

    delimiter = "\t" if path.suffix.lower() == ".tsv" else ","
    with open_regular(path) as file:  # Arrow would take memory for each column at once
        check_column_count(str(path), file.readline(_BLOCK).count(delimiter.encode()) + 1)
    return csv.open_csv(
        regular(path),
        read_options=csv.ReadOptions(block_size=_BLOCK),
        parse_options=csv.ParseOptions(delimiter=delimiter, newlines_in_values=True),
    )


def _misfit_error(path: Path, schema: pa.Schema, number: str, kind: str, value: str) -> InputError:
    # Arrow gives the column's number; a user knows its name.
    return InputError(
        f"{path} has a value in column {schema.names[int(number)]!r} that is no {kind}, unlike the first values "
        f"({value}): make all values of one type, or save the table as Parquet"
    )
