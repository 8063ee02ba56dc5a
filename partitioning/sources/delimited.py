"""Text with a value between delimiters: CSV and TSV."""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from partitioning.common.errors import InputError
from partitioning.sources.source import reading

if TYPE_CHECKING:
    from pyarrow.csv import CSVStreamingReader

_BLOCK = 4 * 2**20  # bytes that are parsed at once; the first of them decide the columns' types
_MISFIT = re.compile(r"In CSV column #(\d+): .*conversion error to (\S+): (.*)", re.DOTALL)


class DelimitedSource:
    """A .csv or .tsv file whose first line names the columns; types are those of its first block."""

    def __init__(self, path: Path) -> None:
        """Read the first block; raises InputError where it is no table."""
        self._path = path
        self.name = path.absolute().name
        with self._reading(), self._open() as reader:
            self.schema: pa.Schema = reader.schema

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """Give all rows in order; raises InputError where a line is ragged or a value is of another type."""
        names = self.schema.names if columns is None else list(columns)
        with self._reading(), self._open() as reader:
            for batch in reader:
                yield batch.select(names)

    def _open(self) -> "CSVStreamingReader":
        from pyarrow import csv

        return csv.open_csv(
            self._path,
            read_options=csv.ReadOptions(block_size=_BLOCK),
            parse_options=csv.ParseOptions(delimiter="\t" if self._path.suffix.lower() == ".tsv" else ","),
        )

    @contextmanager
    def _reading(self) -> Iterator[None]:
        with reading(self._path, "delimited text"):
            try:
                yield
            except pa.ArrowInvalid as error:
                misfit = _MISFIT.search(str(error))
                if misfit is None:
                    raise
                raise self._refusal(*misfit.groups()) from error

    def _refusal(self, number: str, kind: str, value: str) -> InputError:
        # Arrow counts columns where a reader of the file knows them by name.
        return InputError(
            f"{self._path} has a value in column {self.schema.names[int(number)]!r} that is no {kind}, as those at "
            f"its beginning are ({value}): make all values of one type, or save the table as Parquet"
        )
