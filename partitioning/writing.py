"""Writing a population's files, in a folder that appears whole or not at all."""

import hashlib
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from shutil import rmtree

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from partitioning.checks import Integers
from partitioning.clients import ClientTable
from partitioning.errors import InputError
from partitioning.files import SHARD_BYTES, Section, StoredFile, write_file, write_files
from partitioning.manifest import ClientsFile, TestFile

TEST_ROWS = 1024
"""Rows of a slice of the global test set; the last slice may have fewer."""

Progress = Callable[[int, int], None]
"""Called with the clients written so far and the number of clients."""


@dataclass(frozen=True)
class Owners:
    """What is known of the clients before their samples are written."""

    held_out: npt.NDArray[np.bool_]  # [K]
    test_sizes: Integers  # [K]
    class_counts: Integers  # [K, C]


def check_out(out: str | Path) -> Path:
    """Return the folder to make, its links resolved; raises InputError unless it is new or empty."""
    folder = Path(out).resolve()
    if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        raise InputError(f"out is {str(out)!r}, which exists already: give a new name or an empty folder")
    return folder


@contextmanager
def appearing(folder: Path) -> Iterator[Path]:
    """Give a draft folder that takes the place of `folder` at the end, or is removed on any failure."""
    draft = folder.with_name(f".{folder.name}.{uuid.uuid4().hex[:8]}.draft")
    new_parents = [parent for parent in folder.parents if not parent.exists()]
    try:
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
    folder: Path, schema: pa.Schema, batches: Iterable[pa.RecordBatch], owners: Owners
) -> tuple[tuple[StoredFile, ...], ClientsFile]:
    """Write the shards, a batch a client, then clients.parquet, which says where each client is in them."""
    written = list(write_files(folder, schema, batches, limit=SHARD_BYTES))
    shards = tuple(stored for stored, _ in written)
    sections = np.concatenate([part for _, part in written])
    clients = ClientTable(
        held_out=owners.held_out,
        n=sections["rows"],
        n_test=owners.test_sizes,
        class_counts=owners.class_counts,
        shard=np.repeat(np.arange(len(shards)), [shard.batches for shard in shards]),
        batch=np.concatenate([np.arange(shard.batches) for shard in shards]),
        checksum=sections["checksum"],
        offset=sections["offset"],
        length=sections["length"],
    )
    return shards, _write_parquet(folder / "clients.parquet", clients.to_arrow(shards))


def write_test(folder: Path, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> TestFile:
    """Write the global test set, a batch a slice."""
    stored, sections = write_file(folder / "test.arrow", schema, batches)
    return TestFile(stored, tuple(Section(*record) for record in sections.tolist()))


def slices(rows: int) -> Integers:
    """The sizes of the slices of a test set: `TEST_ROWS` rows, fewer in the last."""
    return np.diff(np.append(np.arange(0, rows, TEST_ROWS), rows))


def _write_parquet(path: Path, table: pa.Table) -> ClientsFile:
    import pyarrow.parquet as pq

    pq.write_table(table, path)
    content = path.read_bytes()
    return ClientsFile(path.name, len(content), hashlib.sha256(content).hexdigest())
