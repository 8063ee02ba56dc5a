"""Files of a data set: downloaded, and read as texts, rows and tables; a fault is one line that names the file."""

import contextlib
import io
import shutil
import tempfile
import warnings
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as csv
import pyarrow.parquet as pq

from partitioning.common import bounds
from partitioning.common.columns import check_rows, has_nulls
from partitioning.common.paths import read_text, regular
from partitioning.common.unreadable import UNREADABLE
from partitioning.sources.parquet import decoded_bytes, decoded_sizes, encoded_columns, groups_at_once, open_file
from raysim.common.errors import InputError
from raysim.data.arrays import flat

BLOCK = 2**20
"""Bytes of text read at once."""

TABLE_BYTES = 4
"""Bytes of a table for each byte of its text: a digit and its comma become eight."""

LARGEST_FLOAT = 3.4028234663852886e38
"""Largest number of float32, the type of a model's inputs."""


def fetch(download: Callable[[str], Any], root: Path, files: Sequence[str], *, archives: Sequence[str] = ()) -> None:
    """Download a data set's files unless they exist; a failed download leaves nothing behind.

    Args:
        download: function that writes the files into the given folder.
        root: folder of the files.
        files: names of the files in it.
        archives: packed files; an existing archive is unpacked instead of downloaded.

    Raises:
        InputError: a file is missing and cannot be downloaded.
    """
    missing = [name for name in files if not (root / name).is_file()]
    if not missing:
        return
    base = next(folder for folder in (root, *root.parents) if folder.exists())
    try:
        with tempfile.TemporaryDirectory(prefix=".raysim-download-", dir=base) as stage:
            for name in archives:  # torchvision unpacks an existing archive instead of downloading it
                if (root / name).is_file():
                    (Path(stage) / name).parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy(root / name, Path(stage) / name)
            with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                download(stage)
            for name in missing:
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                (Path(stage) / name).replace(root / name)
    except Exception as error:  # a download or its unpacking may raise anything
        reason = str(error).strip().rpartition("\n")[2] or type(error).__name__
        more = f" and {len(missing) - 1} more" if missing[1:] else ""
        lacks = "" if root.is_dir() else ", which does not exist"
        packed = f", or {archives[0] if len(archives) == 1 else 'the same as .gz'}," if archives else ""
        raise InputError(
            f"{missing[0]}{more} not found in {root}{lacks}, and the data set could not be downloaded ({reason}): "
            f"put the files{packed} there, or set data.root to the folder that holds them"
        ) from error


def missing(root: Path, what: str, source: str) -> InputError:
    """Return the error for missing files that raysim cannot download.

    Args:
        root: folder that should have them.
        what: names of the files.
        source: origin and licence of the files.
    """
    return InputError(
        f"{what} not found in {root}: get the files ({source}) and put them there, "
        "or set data.root to the folder that holds them"
    )


def damaged(path: Path, reason: str) -> InputError:
    """Return the error for a file with wrong contents."""
    return InputError(f"{path} is damaged ({reason}): copy a good one there, or delete it if raysim downloaded it")


def home(root: Path, name: str, marks: Sequence[str], source: str) -> Path:
    """Return the folder that holds a data set: `root/name`, or `root` itself.

    Args:
        root: folder of data sets, or of this one.
        name: name of the data set's own folder.
        marks: files and folders that it must have.
        source: origin of the files.

    Raises:
        InputError: neither folder has all of them.
    """
    for folder in (root / name, root):
        if all((folder / mark).exists() for mark in marks):
            return folder
    # If some files lie in the root itself, the others belong there, too.
    prefix = "" if any((root / mark).exists() for mark in marks) and not (root / name).exists() else f"{name}/"
    absent = next(mark for mark in marks if not (root / prefix / mark).exists())
    raise missing(root, f"{prefix}{absent}", source)


def text_of(path: Path) -> str:
    """Return a text, with line feeds at the ends of lines.

    Args:
        path: file in UTF-8, with or without a byte order mark, and with line ends of any system.

    Raises:
        InputError: the file is in another encoding, or cannot be read.
    """
    try:
        bounds.check_bound(str(path), "bytes", path.stat().st_size, "MAX_ROW_BYTES", "give a shorter text")
        return read_text(path, encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not text in UTF-8 ({error.reason} at byte {error.start}): convert it") from error
    except OSError as error:
        raise damaged(path, error.strerror or str(error)) from error


def read_parquet(path: Path) -> pa.Table:
    """Read a Parquet file; raise InputError if it is too large to be held."""
    # pq.read_table would take a folder named key=value in the path for a column.
    with open_file(path) as file:
        bounds.check_row_count(str(path), file.metadata.num_rows)
        bounds.check_memory(str(path), decoded_bytes(path, file))
        schema, encoded = file.schema_arrow, encoded_columns(file.metadata)
        groups = groups_at_once(file.metadata, encoded)
    with pq.ParquetFile(regular(path), read_dictionary=encoded) as file:
        table = pa.concat_tables([file.read_row_groups(group) for group in groups])
    if not encoded:
        return table
    sizes = (decoded_sizes(chunk).sum() for column in table.columns for chunk in column.chunks)
    bounds.check_memory(str(path), int(sum(sizes)))
    return table.cast(schema)


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
        return read_delimited(path, convert_options=kinds)
    except UNREADABLE as error:
        raise damaged(path, str(error).partition("\n")[0]) from error


def read_delimited(path: Path, most: int = bounds.MAX_ROWS, delimiter: str = ",", **options: Any) -> pa.Table:
    """Read delimited text, packed or not; raise InputError if it is too large to be held.

    Arrow's reader of blocks would take the types of columns from the first block alone.

    Args:
        path: the file.
        most: largest number of rows.
        delimiter: character between two values.
        options: further options of Arrow's reader.
    """
    size = rows = 0
    has_quotes = False
    room = bounds.MEMORY_SHARE * bounds.free_memory() / TABLE_BYTES
    with pa.input_stream(str(regular(path)), compression="detect") as text:
        while block := text.read(BLOCK):
            size, rows = size + len(block), rows + block.count(b"\n")
            has_quotes = has_quotes or b'"' in block
            if rows > most + 1:  # and the names of the columns
                raise InputError(f"{path} has more than {most:,} rows: must have fewer; give the data set's own file")
            if size > room:
                bounds.check_memory(str(path), TABLE_BYTES * size)
    # Values in quotes may have line breaks. A reader that expects them finds its blocks on one core alone.
    parsing = csv.ParseOptions(delimiter=delimiter, newlines_in_values=has_quotes)
    return csv.read_csv(regular(path), parse_options=parsing, **options)


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
    check_rows(table, name=str(path))


def check_labels(labels: pa.ChunkedArray, path: Path, least: int, most: int) -> None:
    """Refuse labels outside a range of whole numbers; the message names the first such row."""
    numbers = labels.cast(pa.int64(), safe=False)  # values beyond int64 become negative, and are refused too
    wrong = pc.invert(pc.and_(pc.greater_equal(numbers, least), pc.less_equal(numbers, most)))
    if (row := pc.index(pc.fill_null(wrong, True), True).as_py()) >= 0:
        raise InputError(
            f"{path}, row {row}, has the label {labels[row].as_py()}: must be {least} to {most}; correct or drop it"
        )


def check_values(table: pa.Table, where: str, imputed: Collection[str] = ()) -> None:
    """Refuse a table without rows, and values that are missing, infinite, not a number, or too large for float32.

    Args:
        table: table with columns of any type; of encoded images only the bytes must exist.
        where: name of the table, for the error message.
        imputed: columns that may have missing values.

    Raises:
        InputError: a column has such a value; the message names the first.
    """
    check_rows(table, name=where)
    for name, column in zip(table.schema.names, table.columns, strict=True):
        encoded = pa.types.is_struct(column.type) and column.type.get_field_index("bytes") >= 0
        values = pc.struct_field(column, "bytes") if encoded else column
        if name in imputed:
            values = pc.drop_null(values)
            values = values.filter(pc.invert(pc.is_nan(values))) if pa.types.is_floating(values.type) else values
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
