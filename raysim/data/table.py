"""A user's own table: a Parquet file of numbers, fixed-size arrays or encoded images, and a label."""

import re
from collections.abc import Collection
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from raysim.common.errors import InputError
from raysim.data.features import check_label, features
from raysim.data.reading import check_values

_INDEX = re.compile(r"__index_level_\d+__")


def read_table(path: Path, label: str, dividing: Collection[str] = ()) -> pa.Table:
    """Read a Parquet file and check that its rows can be trained on; the columns are returned as they are.

    Args:
        path: the file.
        label: its column of classes; all other columns are features.
        dividing: apart from these, which say whose a row is.

    Raises:
        InputError: the file is missing or damaged, or a column, a type or a value is not allowed.
    """
    table = _read(path)
    _check_names(table.schema.names, path)
    check_label(table.schema, label, str(path))
    features(table.schema, label, dividing)
    check_values(table, str(path))
    return table


def _read(path: Path) -> pa.Table:
    if not path.is_file():
        raise InputError(f"{path} is {'a folder' if path.is_dir() else 'missing'}: give the path of a Parquet file")
    try:
        # Not pq.read_table: it takes a folder named key=value in the path for a column.
        with pq.ParquetFile(path) as file:
            return file.read()
    except (pa.ArrowException, OSError) as error:
        reason = str(error).partition("\n")[0].partition(". ")[0].rstrip(".")
        raise InputError(
            f"{path} is not a whole Parquet file ({reason}): only Parquet is read; write it anew, or copy it again"
        ) from error


def _check_names(names: list[str], path: Path) -> None:
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"{path} has {names.count(name)} columns named {name!r}: give each its own name")
        if _INDEX.fullmatch(name):
            raise InputError(f"column {name!r} is a pandas index, not a feature: write the file with index=False")
