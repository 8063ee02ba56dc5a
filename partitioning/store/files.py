"""Files of a population: Arrow files with a checksum per record batch, and Parquet tables.

The checksums of an Arrow file cover its every byte and are checked before Arrow parses them. Each record batch has its
own crc32. `frame` is the crc32 of the bytes before the first and after the last batch: schema, dictionaries, footer.
"""

import hashlib
import itertools
import zlib
from array import array
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from partitioning.common.errors import InputError
from partitioning.common.paths import open_regular, regular
from partitioning.common.unreadable import UNREADABLE

SHARD_BYTES = 256 * 2**20
"""Size of a shard, in bytes, after which the next client starts a new one."""

_BUFFER = 2**20  # bytes; Arrow makes several small writes per batch


@dataclass(frozen=True)
class Section:
    """A record batch in a file: number of rows, byte range, and crc32 of these bytes."""

    rows: int
    offset: int
    length: int
    checksum: int


@dataclass(frozen=True)
class StoredFile:
    """An Arrow file in the manifest; its record batches fill the bytes from `start` to `end`."""

    name: str
    bytes: int
    sha256: str
    batches: int
    start: int
    end: int
    frame: int


@dataclass(frozen=True)
class TableFile:
    """A Parquet file in the manifest."""

    name: str
    bytes: int
    sha256: str

    @classmethod
    def of(cls, path: Path) -> "TableFile":
        """Describe a written file."""
        return cls(path.name, path.stat().st_size, sha256(path))

    def check(self, folder: Path) -> Path:
        """Return the file's path; raise InputError if it is not the file that was written."""
        path = folder / self.name
        check_size(path, self.bytes)
        if sha256(path) != self.sha256:
            raise InputError(f"{path}: its sha256 is not the manifest's: restore it or make the population again")
        return path


SECTIONS = np.dtype([("rows", np.int64), ("offset", np.int64), ("length", np.int64), ("checksum", np.uint32)])
"""`Section` as a record: a population may have millions of sections in one array."""

WrittenFile = tuple[StoredFile, npt.NDArray[np.void]]
"""A file and the sections of its record batches, as an array of `SECTIONS`."""


def write_files(
    folder: Path,
    schema: pa.Schema,
    batches: Iterable[pa.RecordBatch],
    *,
    limit: int = SHARD_BYTES,
    runs: Iterable[int | None] = (None,),
) -> Iterator[WrittenFile]:
    """Write record batches to shard-00000.arrow, shard-00001.arrow, and so on; yield each file.

    Args:
        folder: folder of the files.
        schema: schema of all batches.
        batches: one or more record batches.
        limit: size of a file, in bytes, after which the next batch starts a new one.
        runs: numbers of consecutive batches; each run starts a new file. None stands for all remaining batches.
    """
    remaining, paths = iter(batches), (folder / f"shard-{number:05d}.arrow" for number in itertools.count())
    for run in runs:
        together = itertools.islice(remaining, run)
        while (first := next(together, None)) is not None:
            yield write_file(next(paths), schema, itertools.chain([first], together), limit=limit)


def write_file(
    path: Path, schema: pa.Schema, batches: Iterable[pa.RecordBatch], *, limit: int | None = None
) -> WrittenFile:
    """Write one or more record batches to an uncompressed Arrow IPC file, until it has `limit` bytes."""
    rows, bounds = array("q"), array("q")
    sink = pa.output_stream(str(path), compression=None, buffer_size=_BUFFER)
    with sink, pa.ipc.new_file(sink, schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
            rows.append(batch.num_rows)
            end = sink.tell()
            if not bounds:
                # Schema and dictionaries are written with the first batch; its start follows from its end.
                bounds.append(end - pa.ipc.get_record_batch_size(batch))
            bounds.append(end)
            if limit is not None and end >= limit:
                break
    return _seal(path, rows, bounds)


def _seal(path: Path, rows: "array[int]", bounds: "array[int]") -> WrittenFile:
    # Compute checksums from the file on disk, not from memory.
    sections = np.empty(len(rows), SECTIONS)
    sections["rows"], sections["offset"], sections["length"] = rows, bounds[:-1], np.diff(bounds)
    with pa.memory_map(str(regular(path))) as source:
        content = memoryview(source.read_buffer())
        checksums = (zlib.crc32(content[offset:end]) for offset, end in itertools.pairwise(bounds))
        sections["checksum"] = np.fromiter(checksums, np.uint32, len(rows))
        return StoredFile(
            name=path.name,
            bytes=len(content),
            sha256=sha256(path),
            batches=len(sections),
            start=bounds[0],
            end=bounds[-1],
            frame=_frame(content, bounds[0], bounds[-1]),
        ), sections


def _frame(content: memoryview, start: int, end: int) -> int:
    return zlib.crc32(content[end:], zlib.crc32(content[:start]))


def sha256(path: Path) -> str:
    """Return the hexadecimal sha256 of a file."""
    with open_regular(path) as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn a failure of Arrow on a file with the right checksum into InputError."""
    try:
        yield
    except UNREADABLE as error:
        raise InputError(f"{path} cannot be read ({error}): make the population again") from error


def check_size(path: Path, expected: int) -> None:
    """Raise InputError unless there is a regular file of the expected size."""
    if not path.is_file():
        raise InputError(f"{path} is missing: restore it or make the population again")
    size = path.stat().st_size
    if size != expected:
        raise InputError(
            f"{path} has {size} bytes but {expected} were written: restore it or make the population again"
        )


class MappedFile:
    """A memory-mapped Arrow file; its record batches are views on the mapping.

    Checksums are verified before Arrow parses the bytes: the frame's at once, a batch's at its first read. This
    read also validates the batch's values, because a checksum says nothing of who wrote them.
    """

    def __init__(self, folder: Path, stored: StoredFile) -> None:
        """Map the file; raise InputError if it is not the file that was written."""
        self._path = folder / stored.name
        check_size(self._path, stored.bytes)
        source = pa.memory_map(str(regular(self._path)))
        self._buffer = source.read_buffer()
        if _frame(memoryview(self._buffer), stored.start, stored.end) != stored.frame:
            raise InputError(_damage(self._path, "its schema or footer"))
        with reading(self._path):
            self._reader = pa.ipc.open_file(source)
        if self._reader.num_record_batches != stored.batches:
            raise InputError(_damage(self._path, "its number of record batches"))
        self._checked = bytearray(stored.batches)  # 1 for each batch with a verified checksum

    @property
    def schema(self) -> pa.Schema:
        """Schema of all batches."""
        return self._reader.schema

    def read(self, number: int, section: Section, *, owner: str) -> pa.RecordBatch:
        """Return a record batch without a copy; raise InputError, with the owner's name, if it was changed."""
        is_checked = self._checked[number]
        if not is_checked:
            self._check(section, owner)
        with reading(self._path):
            batch = self._reader.get_batch(number)
            if not is_checked:
                batch.validate(full=True)  # whoever made the file may have written offsets that crash its readers
        self._checked[number] = 1
        if batch.num_rows != section.rows:
            raise InputError(_damage(self._path, f"the number of rows of {owner}"))
        return batch

    def _check(self, section: Section, owner: str) -> None:
        content = self._buffer.slice(section.offset, section.length)
        if zlib.crc32(memoryview(content)) != section.checksum:
            raise InputError(_damage(self._path, f"the checksum of {owner}"))


def _damage(path: Path, part: str) -> str:
    return f"{path}: {part} is not what was written: restore the file or make the population again"
