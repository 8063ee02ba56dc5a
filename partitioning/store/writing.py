"""Writing a population's files, in a folder that appears whole or not at all."""

import re
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from shutil import rmtree
from typing import Any

import numpy as np
import pyarrow as pa

from partitioning.common.checks import Integers
from partitioning.common.disk import report_full_disk
from partitioning.common.errors import InputError
from partitioning.making.sites import runs
from partitioning.store.clients import ClientTable, Places
from partitioning.store.files import SHARD_BYTES, Section, StoredFile, TableFile, write_file, write_files
from partitioning.store.manifest import TestSet

CLIENTS, ROWS, MOMENTS = "clients.parquet", "rows.parquet", "moments.parquet"

TEST_ROWS = 1024
"""Rows of a slice of a test set; the last slice may have fewer."""

TEST_IMAGES = 16
"""The same where labels are images: a slice is held whole, and scored pixel by pixel."""

Progress = Callable[[int, int], None]
"""Called with the clients written so far and the number of clients."""


def check_out(out: str | Path) -> Path:
    """Return the folder to make, its links resolved; raises InputError unless it is new or empty."""
    folder = Path(out).resolve()
    if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        raise InputError(f"out is {str(out)!r}, which exists already: give a new name or an empty folder")
    return folder


@contextmanager
def write_folder(folder: Path) -> Iterator[Path]:
    """Give a draft folder that takes the place of `folder` at the end, or is removed on any failure."""
    draft = folder.with_name(f".{folder.name}.{uuid.uuid4().hex[:8]}.draft")
    new_parents = [parent for parent in folder.parents if not parent.exists()]
    try:
        with report_full_disk(folder):
            draft.mkdir(parents=True)
            yield draft
            if folder.exists():
                folder.rmdir()
            draft.rename(folder)
    except BaseException as error:
        rmtree(draft, ignore_errors=True)
        for parent in new_parents:
            if parent.exists():
                parent.rmdir()
        if isinstance(error, FileExistsError | NotADirectoryError | PermissionError):
            raise InputError(f"{folder} cannot be made ({error.strerror}): give another folder") from error
        raise


def write_clients(
    folder: Path, schema: pa.Schema, batches: Iterable[pa.RecordBatch], clients: ClientTable
) -> tuple[tuple[StoredFile, ...], TableFile]:
    """Write the shards, a batch a client and no file of two sites, then clients.parquet, which says where each is."""
    written = list(write_files(folder, schema, batches, limit=SHARD_BYTES, runs=runs(clients.sites)))
    shards = tuple(stored for stored, _ in written)
    sections = np.concatenate([part for _, part in written])
    if not np.array_equal(sections["rows"], clients.n):
        raise ValueError("the batches are not those of the clients: their numbers of rows differ")
    places = Places(
        shard=np.repeat(np.arange(len(shards)), [shard.batches for shard in shards]),
        batch=np.concatenate([np.arange(shard.batches) for shard in shards]),
        checksum=sections["checksum"],
        offset=sections["offset"],
        length=sections["length"],
    )
    return shards, write_table(folder / CLIENTS, replace(clients, places=places, schema=schema).to_arrow(shards))


def write_test(folder: Path, name: str | None, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> TestSet:
    """Write the global test set, or a domain's, a batch a slice."""
    stored, sections = write_file(folder / test_file_name(name), schema, batches)
    return TestSet(name, stored, tuple(Section(*record) for record in sections.tolist()))


def test_file_name(name: str | None) -> str:
    """Return the file name of a test set; signs that no file name should have become a hyphen."""
    return "test.arrow" if name is None else f"test-{re.sub(r'[^A-Za-z0-9._-]+', '-', name)}.arrow"


def write_rows(folder: Path, rows: Integers) -> TableFile:
    """Write rows.parquet: the source row of every sample, in client order."""
    return write_table(folder / ROWS, pa.table({"row": rows}), use_dictionary=False)


def slice_sizes(rows: int, most: int = TEST_ROWS) -> Integers:
    """The sizes of the slices of a test set: so many rows, fewer in the last."""
    return np.diff(np.append(np.arange(0, rows, most), rows))


def write_table(path: Path, table: pa.Table, **options: Any) -> TableFile:
    """Write a Parquet file."""
    import pyarrow.parquet as pq

    pq.write_table(table, path, **options)
    return TableFile.of(path)
