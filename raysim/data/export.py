"""Data sets written as Parquet files, for the partitioner and other tools."""

import tempfile
from collections.abc import Sequence
from pathlib import Path

import pyarrow.parquet as pq

from partitioning.common.disk import DiskFullError, report_full_disk
from raysim.common.errors import InputError
from raysim.data.sets.tabular import TableUse
from raysim.data.sources import read

ROW_GROUP = 10_000
"""Rows of a row group; a reader holds one group at a time."""


def export(
    dataset: str,
    path: str | Path,
    root: str | None = None,
    *,
    label: str | None = None,
    shifts: Sequence[str] = (),
    seed: int = 0,
    rows: int | None = None,
) -> tuple[Path, ...]:
    """Write a data set with all its columns as Parquet: the rows to partition to `path`, its test rows beside it.

    Args:
        dataset: one of `DATASETS` or `DATASET_FORMS`.
        path: new file, such as "mnist.parquet" or "mnist-train.parquet"; the test rows go to "mnist-test.parquet".
        root: folder of the data set's files, see `load`.
        label: name of the label column, by default the data set's own.
        shifts: domains of "shifted:NAME".
        seed: key of the draws.
        rows: largest number of rows to partition, the first ones; None for all. The test rows are all written.

    Returns:
        The written files.

    Raises:
        InputError: see `load`; also if a file exists or cannot be written, or `rows` is below 1.
    """
    path = Path(path)
    check_file(path)
    if rows is not None and rows < 1:
        raise InputError(f"rows = {rows}: must be at least 1; leave it out for all")
    source = read(dataset, root=root, use=TableUse(label), shifts=shifts, seed=seed)
    tables = {path: source.train if rows is None else source.train.slice(0, rows)}
    if source.test is not None:
        tables[path.with_name(f"{path.stem.removesuffix('-train')}-test{path.suffix}")] = source.test
    for target in tables:
        check_file(target)
    try:
        # The stage is on the same disk, so the renames at the end are atomic.
        with report_full_disk(path), tempfile.TemporaryDirectory(prefix=".raysim-export-", dir=path.parent) as stage:
            absolute = Path(stage).absolute()  # Arrow takes a relative path such as `file:x/y` for an address
            for target, table in tables.items():
                pq.write_table(table, absolute / target.name, compression="zstd", row_group_size=ROW_GROUP)
            for target in reversed(tables):  # the test rows first: a file to partition is never without them
                (Path(stage) / target.name).replace(target)
    except DiskFullError:
        raise
    except OSError as error:
        raise InputError(f"{path} cannot be written ({error.strerror or error}): choose another place") from error
    return tuple(tables)


def check_file(path: Path) -> None:
    """Raise InputError unless a new Parquet file can be made at a path."""
    if path.suffix != ".parquet":
        raise InputError(f"{path} does not end in .parquet: name the file {path.name or 'data'}.parquet")
    if not path.parent.is_dir():
        raise InputError(f"{path.parent} is not a folder: create it, or choose another place for {path.name}")
    if path.is_dir():
        raise InputError(f"{path} is a folder: choose another name for the file")
    if path.exists():
        raise InputError(f"{path} exists: must be a new file; name another, or remove it")
