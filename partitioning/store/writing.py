"""Writing the files of a population, into a folder that appears whole or not at all."""

import errno
import platform
import re
import sys
import uuid
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from glob import escape
from pathlib import Path
from shutil import rmtree
from typing import Any

import numpy as np
import pyarrow as pa

from partitioning.common.checks import Integers
from partitioning.common.disk import lock, report_full_disk
from partitioning.common.errors import InputError
from partitioning.common.paths import check_path
from partitioning.store.clients import LOCATIONS, ClientTable
from partitioning.store.files import SHARD_BYTES, Section, StoredFile, TableFile, write_file, write_files
from partitioning.store.manifest import MANIFEST, TestSet
from partitioning.store.moments import measure_moments

CLIENTS, ROWS, MOMENTS = "clients.parquet", "rows.parquet", "moments.parquet"

FILES = (MANIFEST, CLIENTS, ROWS, MOMENTS, "shard-*.arrow", "test.arrow", "test-*.arrow")
"""Patterns of a population's files."""

_DRAFT = re.compile(r"\..+\.[0-9a-f]{8}\.draft")

_UNUSABLE = (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR, errno.EACCES, errno.EPERM)  # of a place for a folder

TEST_ROWS = 1024
"""Rows per slice of a test set; the last slice may have fewer."""

TEST_IMAGES = 16
"""Rows per slice if labels are images: a slice is held whole and scored pixel by pixel."""

Progress = Callable[[int, int], object]
"""Callback with the clients written so far, or bytes copied so far, and their number in all."""


def check_out(out: str | Path) -> Path:
    """Return the output folder with links resolved; raise InputError unless it is new or empty."""
    folder = check_path("out", out).resolve()
    if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        raise InputError(f"out is {str(out)!r}, which exists already: give a new name or an empty folder")
    return folder


@contextmanager
def write_folder(folder: Path) -> Iterator[Path]:
    """Yield an absolute draft folder that becomes `folder` at the end; a failure removes it."""
    draft = folder.absolute().with_name(f".{folder.name}.{_here()}{uuid.uuid4().hex[:4]}.draft")
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
            with suppress(OSError):  # there is none, or another process put something into it
                parent.rmdir()
        if isinstance(error, OSError) and error.errno in _UNUSABLE:
            raise InputError(f"{folder} cannot be made ({error.strerror}): give another folder") from error
        raise


@contextmanager
def only_writer(folder: Path) -> Iterator[None]:
    """Wait until no process of this machine writes a folder, and remove the drafts of it that killed ones left.

    Raises:
        OSError: the folder's place cannot be written, or its file system has no locks.
    """
    with report_full_disk(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
        with folder.with_name(f".{folder.name}.lock").open("w") as file:
            lock(file)  # which its holder's death frees
            if sys.platform != "win32":  # without locks, a draft may be another process's
                for draft in folder.parent.glob(f".{escape(folder.name)}.{_here()}{'[0-9a-f]' * 4}.draft"):
                    rmtree(draft, ignore_errors=True)
            yield


def _here() -> str:
    # Mark of this machine in its drafts: on a shared file system, a lock may hold on one machine only.
    return f"{zlib.crc32(platform.node().encode()) % 2**16:04x}"


def remove_population(folder: Path) -> None:
    """Remove a population's files, and its folder if nothing else is in it."""
    for pattern in FILES:
        for path in folder.glob(pattern):
            path.unlink()
    with suppress(OSError):
        folder.rmdir()


def remove_drafts(folder: Path) -> None:
    """Remove the drafts in a folder that killed processes left there."""
    for draft in folder.iterdir():
        if _DRAFT.fullmatch(draft.name):
            rmtree(draft)


def reported(batches: Iterable[pa.RecordBatch], clients: int, progress: Progress | None) -> Iterator[pa.RecordBatch]:
    """Yield the clients' batches, and call `progress` when each is written."""
    for done, batch in enumerate(batches, start=1):
        yield batch
        if progress is not None:
            progress(done, clients)


def write_samples(
    folder: Path,
    schema: pa.Schema,
    batches: Iterable[pa.RecordBatch],
    clients: ClientTable,
    measured: Mapping[str, int],
    *,
    index_only: bool = False,
) -> dict[str, Any]:
    """Write the files that depend on the samples, and return their entries in the manifest.

    The moments are those of the columns in `measured`. Without shards (`index_only`), only they read the batches.
    """
    if measured:
        batches = measure_moments(batches, folder / MOMENTS, measured, clients.n_test)
    if not index_only:
        shards, table = write_clients(folder, schema, batches, clients)
    else:
        shards, table = (), write_table(folder / CLIENTS, clients.to_arrow(()))
        deque(batches if measured else (), maxlen=0)
    return {"shards": shards, "clients": table, "moments": TableFile.of(folder / MOMENTS) if measured else None}


def write_clients(
    folder: Path, schema: pa.Schema, batches: Iterable[pa.RecordBatch], clients: ClientTable
) -> tuple[tuple[StoredFile, ...], TableFile]:
    """Write the shards, one batch per client and no file with two sites; then write clients.parquet."""
    written = list(write_files(folder, schema, batches, limit=SHARD_BYTES, runs=_site_runs(clients.sites)))
    shards = tuple(stored for stored, _ in written)
    sections = np.concatenate([part for _, part in written])
    if not np.array_equal(sections["rows"], clients.n):
        raise ValueError("the batches are not those of the clients: their numbers of rows differ")
    locations = np.empty(len(clients), LOCATIONS)
    locations["shard"] = np.repeat(np.arange(len(shards)), [shard.batches for shard in shards])
    locations["batch"] = np.concatenate([np.arange(shard.batches) for shard in shards])
    for name in ("checksum", "offset", "length"):
        locations[name] = sections[name]
    return shards, write_table(folder / CLIENTS, replace(clients, locations=locations, schema=schema).to_arrow(shards))


def _site_runs(sites: pa.Array | None) -> list[int | None]:
    # Lengths of runs of clients of one site; the last is None, for all remaining clients.
    if sites is None:
        return [None]
    bounds = np.flatnonzero(np.diff(np.asarray(sites.dictionary_encode().indices))) + 1
    return [*np.diff(bounds, prepend=0).tolist(), None]


def write_test(folder: Path, name: str | None, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> TestSet:
    """Write a test set, one batch per slice; `name` is its domain, None for the global one."""
    stored, sections = write_file(folder / test_file_name(name), schema, batches)
    return TestSet(name, stored, tuple(Section(*record) for record in sections.tolist()))


def test_file_name(name: str | None) -> str:
    """Return the file name of a test set; characters unfit for file names become a hyphen."""
    return "test.arrow" if name is None else f"test-{re.sub(r'[^A-Za-z0-9._-]+', '-', name)}.arrow"


def write_rows(folder: Path, rows: Integers) -> TableFile:
    """Write rows.parquet: source row of every sample, in client order."""
    return write_table(folder / ROWS, pa.table({"row": rows}), use_dictionary=False)


def write_table(path: Path, table: pa.Table, **options: Any) -> TableFile:
    """Write a Parquet file and describe it."""
    import pyarrow.parquet as pq

    pq.write_table(table, path, **options)
    return TableFile.of(path)
