"""Texts, rows and tables of a data set's files; a fault is reported in one line that names the file."""

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as csv
import pyarrow.parquet as pq

from raysim.common.errors import InputError
from raysim.data.arrays import flat, has_nulls
from raysim.data.fetching import damaged

LARGEST_FLOAT = 3.4028234663852886e38
"""Largest number of float32, the type of a model's inputs."""


def text_of(path: Path) -> str:
    """Return a text, with line feeds at the ends of lines.

    Args:
        path: file in UTF-8, with or without a byte order mark, and with line ends of any system.

    Raises:
        InputError: the file is in another encoding, or cannot be read.
    """
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not text in UTF-8 ({error.reason} at byte {error.start}): convert it") from error
    except OSError as error:
        raise damaged(path, error.strerror or str(error)) from error


def read_parquet(path: Path) -> pa.Table:
    """Read a Parquet file."""
    # pq.read_table would take a folder named key=value in the path for a column.
    with pq.ParquetFile(path) as file:
        return file.read()


def table_of(path: Path, words: Sequence[str] = ()) -> pa.Table:
    """Return a table.

    Args:
        path: Parquet file, if its name ends in .parquet, or else CSV file with a header.
        words: columns of a CSV file to read as strings, even if they look like "0013" or "NA".

    Raises:
        InputError: the file is damaged, or cannot be read.
    """
    try:
        if path.suffix.lower() == ".parquet":
            return read_parquet(path)
        kinds = csv.ConvertOptions(column_types=dict.fromkeys(words, pa.string()))
        return csv.read_csv(path, convert_options=kinds)
    except (pa.ArrowException, OSError) as error:
        raise damaged(path, str(error).partition("\n")[0]) from error


def words_of(path: Path, *names: str) -> list[tuple[str, ...]]:
    """Return the rows of some columns of a table as strings, none of them blank.

    Args:
        path: see `table_of`.
        names: names of the columns.

    Raises:
        InputError: the file is damaged, has no rows, or lacks a column; a value is missing, or not text.
    """
    table = table_of(path, names)
    check_columns(table, names, path)
    columns = []
    for name in names:
        try:
            words = table[name].cast(pa.string()).to_pylist()
        except pa.ArrowException as error:
            reason = str(error).partition("\n")[0]
            raise InputError(f"column {name!r} of {path} is not text ({reason}): write it again") from error
        lacking = next((row for row, word in enumerate(words) if word is None or not word.strip()), None)
        if lacking is not None:
            raise InputError(f"{path}, row {lacking}, lacks its {name}: fill it in, or drop the row")
        columns.append(words)
    return list(zip(*columns, strict=True))


def named_in(folder: Path, name: str, listing: Path) -> Path:
    """Return the path of a file in a folder or below it.

    Args:
        folder: folder of the file.
        name: path of the file inside the folder.
        listing: file that names it, for the error message.

    Raises:
        InputError: there is no such file, or the name leads out of the folder.
    """
    if Path(name).is_absolute() or ".." in Path(name).parts:
        raise InputError(f"{listing} names {name!r}, which is not in {folder}: must be a file in there; correct it")
    if not (folder / name).is_file():
        raise InputError(f"{folder / name} is missing, and {listing.name} names it: unpack the archive again")
    return folder / name


def check_columns(table: pa.Table, names: Sequence[str], path: Path) -> None:
    """Refuse a table without rows, or without exactly one column of each of these names."""
    for name in names:
        if (count := table.schema.names.count(name)) != 1:
            what = f"{count} columns named" if count else "no column"
            raise InputError(f"{path} has {what} {name!r}: must have one; give it this name")
    check_rows(table, str(path))


def check_rows(table: pa.Table, where: str) -> None:
    """Refuse a table without rows."""
    if not table.num_rows:
        raise InputError(f"{where} has no rows: give at least one")


def check_labels(labels: pa.ChunkedArray, path: Path, least: int, most: int) -> None:
    """Refuse labels outside a range of whole numbers; the message names the first such row."""
    numbers = labels.cast(pa.int64(), safe=False)  # values beyond int64 become negative, and are refused too
    wrong = pc.invert(pc.and_(pc.greater_equal(numbers, least), pc.less_equal(numbers, most)))
    if (row := pc.index(pc.fill_null(wrong, True), True).as_py()) >= 0:
        raise InputError(
            f"{path}, row {row}, has the label {labels[row].as_py()}: must be {least} to {most}; correct or drop it"
        )


def check_values(table: pa.Table, where: str) -> None:
    """Refuse a table without rows, and values that are missing, infinite, not a number, or too large for float32.

    Args:
        table: table with columns of any type; of encoded images only the bytes must exist.
        where: name of the table, for the error message.

    Raises:
        InputError: a column has such a value; the message names the first.
    """
    check_rows(table, where)
    for name, column in zip(table.schema.names, table.columns, strict=True):
        encoded = pa.types.is_struct(column.type) and column.type.get_field_index("bytes") >= 0
        values = pc.struct_field(column, "bytes") if encoded else column
        if any(has_nulls(chunk) for chunk in values.chunks):
            rows = f" ({values.null_count} rows)" if values.null_count else ""
            raise InputError(f"column {name!r} has nulls{rows} in {where}: fill them in, or drop the rows")
        if not all(_is_sound(flat(chunk)) for chunk in values.chunks):
            raise InputError(
                f"column {name!r} has values in {where} that are infinite, not a number, or beyond "
                f"{LARGEST_FLOAT:.1e}: correct them, or drop the rows"
            )


def _is_sound(values: pa.Array) -> bool:
    """Say whether float32 holds all values, if they are floats."""
    if not pa.types.is_floating(values.type) or not len(values):
        return True
    if not pc.all(pc.is_finite(values)).as_py():
        return False
    if not pa.types.is_float64(values.type):
        return True
    ends = pc.min_max(values)
    return bool(ends["min"].as_py() >= -LARGEST_FLOAT and ends["max"].as_py() <= LARGEST_FLOAT)
