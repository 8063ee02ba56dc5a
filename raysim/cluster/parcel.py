"""Parcel of a run's folder, sent through the log of a job: packed on the head, checked here.

A job server hands back nothing but logs. `python -m raysim.cluster.parcel send DIR` writes the folder as lines of
base64 of a tar.gz, and a last line with size and SHA-256. `python -m raysim.cluster.parcel remove DIR` removes the
folder. Both run as jobs on the cluster's head.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import shutil
import sys
import tarfile
import zlib
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import IO, BinaryIO, TextIO, cast

from partitioning.common.disk import report_full_disk

LIMIT = 2**30
"""Largest size of a folder in bytes: the head keeps the logs of its jobs."""

MAX_ENTRIES = 2**15
"""Largest number of files and folders in a parcel."""

HEADERS = MAX_ENTRIES * 2**11
"""Bytes that the headers and gaps of the archive may take beside the files."""

MAX_READ = 2**20
"""Most bytes that the archive's reader may ask for at once: a header is small, and files are read in pieces."""

MAX_NAME, MAX_PART = 1000, 255
"""Most characters of an entry's path, and most bytes of a name in it."""

PIECE = 3 * 2**14
"""Bytes a line: a multiple of three, which base64 writes without padding."""

GZIP = 16
"""Flag of zlib for the header and the end of a gzip file."""

DATA, END, ABSENT, REFUSED = "::parcel:: ", "::parcel-end:: ", "::parcel-absent::", "::parcel-refused:: "
"""Prefixes of the lines of a parcel."""

FOLDER = "raysim-"
"""Prefix of a job's folder on the cluster."""


UNREADABLE = (tarfile.TarError, EOFError, zlib.error, ValueError, RecursionError, FileExistsError, NotADirectoryError)
"""Errors of reading data that is no parcel."""


class ParcelError(RuntimeError):
    """Failed transfer of a folder, which is still on the cluster."""


def send(folder: Path, stream: TextIO, limit: int = LIMIT) -> None:
    """Write a folder as lines, or one line with the reason for a refusal."""
    if not folder.is_dir():
        print(ABSENT, file=stream)
        return
    sizes = [path.stat().st_size if path.is_file() else 0 for path in folder.rglob("*")]
    size = sum(sizes)
    if size > limit:
        print(f"{REFUSED}{size / 2**20:,.0f} MiB, and the limit is {limit / 2**20:,.0f} MiB", file=stream)
        return
    if len(sizes) >= MAX_ENTRIES:
        print(f"{REFUSED}{len(sizes):,} files and folders, and the limit is {MAX_ENTRIES - 1:,}", file=stream)
        return
    # Compress fast: models and tables, most of the bytes, hardly shrink.
    with (
        _lines(stream) as lines,
        gzip.GzipFile(fileobj=lines, mode="wb", compresslevel=1, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w|") as tar,
    ):
        tar.add(folder, arcname=".")


@contextmanager
def _lines(stream: TextIO) -> Iterator[BinaryIO]:
    """Yield a writable file whose bytes become lines of the stream; end with a line of their size and SHA-256."""
    waiting, sha256, size = bytearray(), hashlib.sha256(), 0

    def write(data: bytes, least: int = PIECE) -> int:
        nonlocal size
        waiting.extend(data)
        while len(waiting) >= least:
            piece = bytes(waiting[:PIECE])
            del waiting[:PIECE]
            sha256.update(piece)
            size += len(piece)
            print(DATA + b64encode(piece).decode("ascii"), file=stream)
        return len(data)

    yield cast(BinaryIO, SimpleNamespace(write=write, flush=lambda: None))
    write(b"", least=1)
    print(END + json.dumps({"bytes": size, "sha256": sha256.hexdigest()}), file=stream)


def receive(
    lines: Iterable[str], folder: Path, limit: int = LIMIT, complete: Callable[[Path], object] = lambda _: None
) -> bool:
    """Unpack the parcel of `send` after it has arrived whole and undamaged.

    Args:
        lines: lines of the job; other lines than the parcel's are ignored.
        folder: new folder; it appears complete, or not.
        limit: largest size in bytes of all files.
        complete: function that completes the folder before it appears.

    Returns:
        Whether the folder exists on the cluster.

    Raises:
        ParcelError: the parcel is too large, incomplete or damaged, or holds entries that no run writes.
        DiskFullError: this machine has no room for it.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix=".parcel-", dir=folder.parent) as name, report_full_disk(folder):
        archive, draft = Path(name, "archive"), Path(name, "run")
        with archive.open("wb") as file:
            there = _collect(lines, file, limit)
        if there:
            with _damage_reported():
                _unpack(archive, draft, limit)
            complete(draft)
            draft.rename(folder)
    return there


def _collect(lines: Iterable[str], file: IO[bytes], limit: int) -> bool:
    """Write the parcel's archive without its compression, and compare the bytes with the parcel's last line."""
    sha256, size, read, unpacker = hashlib.sha256(), 0, 0, zlib.decompressobj(wbits=zlib.MAX_WBITS | GZIP)
    for line in lines:
        read += len(line) + 1
        if read > 2 * (limit + HEADERS):  # base64 takes a third more than the bytes
            raise ParcelError(f"its log has more than {2 * (limit + HEADERS):,} characters")
        if line.startswith(DATA):
            with _damage_reported():
                piece = b64decode(line.removeprefix(DATA))
                file.write(unpacker.decompress(piece, max(1, limit + HEADERS + 1 - file.tell())))
            sha256.update(piece)
            size += len(piece)
            if file.tell() > limit + HEADERS or unpacker.unconsumed_tail:
                raise ParcelError(f"it unpacks to more than {limit + HEADERS:,} bytes")
        elif line.startswith(END):
            with _damage_reported():
                sent = json.loads(line.removeprefix(END))
            if sent != {"bytes": size, "sha256": sha256.hexdigest()}:
                raise ParcelError(f"its {size} bytes differ from those sent")
            if not unpacker.eof or unpacker.unused_data:
                raise ParcelError("it is damaged (its compression has another end)")
            return True
        elif line == ABSENT:
            return False
        elif line.startswith(REFUSED):
            raise ParcelError(f"it has {line.removeprefix(REFUSED)}")
    raise ParcelError(f"it breaks off after {size} bytes")


class _Archive(io.FileIO):
    """Archive whose headers cannot make its reader take much memory, or read on from a negative size."""

    def read(self, size: int | None = -1, /) -> bytes:
        if size is None or not 0 <= size <= MAX_READ:
            raise ParcelError(f"an entry's header has more than {MAX_READ:,} bytes")
        return super().read(size)


def _unpack(archive: Path, folder: Path, limit: int) -> None:
    """Unpack plain files and folders, and refuse all other entries."""
    folder.mkdir()
    with _Archive(archive) as file, tarfile.open(fileobj=file, mode="r:") as tar:
        for count, member in enumerate(tar, start=1):
            limit -= member.size
            target = folder / member.name
            repeated = target.exists() and not (member.isdir() and target.is_dir())
            if not _is_plain(member) or repeated or limit < 0 or count > MAX_ENTRIES:
                raise ParcelError(f"no run writes its entry {member.name!r}, or one of that size or number")
            if member.isdir():
                target.mkdir(parents=True, exist_ok=True)
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            source = tar.extractfile(member)
            assert source is not None
            with source, target.open("xb") as out:
                shutil.copyfileobj(source, out)


def _is_plain(member: tarfile.TarInfo) -> bool:
    """Return whether an entry is a file or folder below the archive's, with a name that any file system takes."""
    path = PurePosixPath(member.name)
    return (
        member.type in (tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.DIRTYPE)
        and not member.issparse()
        and member.size >= 0
        and member.name.isprintable()
        and len(member.name) <= MAX_NAME
        and not path.is_absolute()
        and all(part != ".." and len(part.encode()) <= MAX_PART for part in path.parts)
    )


@contextmanager
def _damage_reported() -> Iterator[None]:
    """Turn errors of unreadable data in the context into a ParcelError."""
    try:
        yield
    except UNREADABLE as error:
        raise ParcelError(f"it is damaged ({' '.join(str(error).split())})") from error


def remove(folder: Path) -> None:
    """Remove the folder of a job, with the run in it."""
    if folder.parent.name.startswith(FOLDER):
        shutil.rmtree(folder.parent, ignore_errors=True)


if __name__ == "__main__":
    action, path = sys.argv[1:]
    if action == "send":
        send(Path(path), sys.stdout)
    elif action == "remove":
        remove(Path(path))
    else:
        sys.exit(f"{action!r}: must be send or remove")
