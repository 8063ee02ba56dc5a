"""Parcel of a run's folder, sent through the log of a job: packed on the head, unpacked here.

A job server hands back nothing but logs. `python -m raysim.cluster.parcel DIR`, a job on the cluster's head, writes the
folder's tar archive as lines, each a compressed piece in base64, and a last line with the archive's SHA-256.
"""

from __future__ import annotations

import hashlib
import io
import os
import sys
import tarfile
import zlib
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import BinaryIO, TextIO, TypeVar, cast

from partitioning.common.disk import report_full_disk
from partitioning.common.paths import check_path

LIMIT = 2**30  # bytes of a folder: the head keeps the logs of its jobs
ENTRY = 2**15  # bytes that a file or folder counts beside its content, far more than its header in the archive
READ = 2**16  # most bytes that the archive's reader may ask for: a header is small, and files are read in pieces
PIECE = 3 * 2**14  # bytes of the archive in a line

DATA, END, ABSENT, REFUSED = "::parcel:: ", "::parcel-end:: ", "::parcel-absent::", "::parcel-refused:: "
"""Prefixes of the lines of a parcel."""

UNREADABLE = (tarfile.TarError, zlib.error, ValueError, OverflowError, RecursionError)
BLOCKED = (FileExistsError, IsADirectoryError, NotADirectoryError)
"""Errors of reading data that is no parcel, and of entries that stand in each other's way."""

Checked = TypeVar("Checked")


class FetchError(RuntimeError):
    """Run's folder that did not arrive, or is not as raysim writes it; it is still on the cluster."""


class _Lines:
    """Writable file whose pieces become lines of a stream."""

    def __init__(self, stream: TextIO) -> None:
        self.stream, self.sha256 = stream, hashlib.sha256()

    def write(self, piece: bytes) -> int:
        self.sha256.update(piece)
        # Compress fast: models and tables, most of the bytes, hardly shrink.
        print(DATA + b64encode(zlib.compress(piece, 1)).decode(), file=self.stream)
        return len(piece)


def send(folder: Path, stream: TextIO, limit: int = LIMIT) -> None:
    """Write a folder as lines, or one line with the reason for a refusal."""
    size = sum(ENTRY + (path.stat().st_size if path.is_file() else 0) for path in (folder, *folder.rglob("*")))
    if not folder.is_dir():
        print(ABSENT, file=stream)
    elif size > limit:
        print(f"{REFUSED}{size / 2**20:,.0f} MiB, and the limit is {limit / 2**20:,.0f} MiB", file=stream)
    else:
        lines = _Lines(stream)
        with tarfile.open(fileobj=cast(BinaryIO, lines), mode="w|", bufsize=PIECE, format=tarfile.GNU_FORMAT) as tar:
            tar.add(folder, arcname=".")
        print(END + lines.sha256.hexdigest(), file=stream)


def receive(lines: Iterable[str], folder: Path, check: Callable[[Path], Checked], limit: int = LIMIT) -> Checked | None:
    """Unpack the parcel of `send` after it has arrived whole and undamaged; return None if there is no folder to send.

    Args:
        lines: lines of the job; other lines than the parcel's are ignored.
        folder: new folder; it appears complete and checked, or not.
        check: function that checks and completes the folder before it appears; its result is returned.
        limit: largest size in bytes.

    Raises:
        FetchError: the parcel is too large, incomplete or damaged, or holds entries that no run writes.
        DiskFullError: this machine has no room for it.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix=".parcel-", dir=folder.parent) as name, report_full_disk(folder):
        archive, draft = Path(name, "archive"), Path(name, "run")
        draft.mkdir()
        try:
            if not _collect(lines, archive, limit):
                return None
            with _Archive(archive) as file, tarfile.open(fileobj=file, mode="r:") as tar:
                tar.extractall(draft, filter=_PlainEntries(limit))
        except (*UNREADABLE, *BLOCKED) as error:
            raise FetchError(f"it is damaged ({' '.join(str(error).split())})") from error
        checked = check(draft)
        draft.rename(folder)
    return checked


def _collect(lines: Iterable[str], archive: Path, limit: int) -> bool:
    """Write a parcel's archive and compare its digest; return False if there is no folder on the cluster."""
    sha256, size, read = hashlib.sha256(), 0, 0
    with archive.open("wb") as file:
        for line in lines:
            read += len(line)
            if size > limit or read > 2 * limit:  # base64 takes a third more than the bytes
                raise FetchError(f"it has more than {limit:,} bytes")
            if line.startswith(DATA):
                piece = zlib.decompress(b64decode(line.removeprefix(DATA)))
                sha256.update(piece)
                size += file.write(piece)
            elif line.startswith(END):
                if line != END + sha256.hexdigest():
                    raise FetchError(f"its {size} bytes differ from those sent")
                return True
            elif line == ABSENT:
                return False
            elif line.startswith(REFUSED):
                raise FetchError(f"it has {line.removeprefix(REFUSED)}")
    raise FetchError(f"it breaks off after {size} bytes")


class _Archive(io.FileIO):
    """Archive whose headers cannot make its reader take much memory, or read on from a negative size."""

    def read(self, size: int | None = -1, /) -> bytes:
        if size is None or not 0 <= size <= READ:
            raise FetchError(f"an entry's header has more than {READ:,} bytes")
        return super().read(size)


class _PlainEntries:
    """Filter of an archive: new plain files and folders, with names that any file system takes, up to a limit."""

    def __init__(self, limit: int) -> None:
        self.room, self.names = limit, set[str]()

    def __call__(self, member: tarfile.TarInfo, place: str, /) -> tarfile.TarInfo:
        safe, name = tarfile.data_filter(member, place), os.path.normpath(member.name)
        self.room -= ENTRY + member.size
        plain = (member.isfile() or member.isdir()) and not member.issparse() and safe.name == member.name
        if not plain or not name.isprintable() or name in self.names or self.room < 0:
            raise FetchError(f"no run writes its entry {name[:100]!r}, or one of that size or number")
        self.names.add(name)
        check_path("entry", Path(place, name))
        # Permissions and times are those of new files here.
        return safe.replace(mode=None, mtime=None, deep=False)  # type: ignore[arg-type]


if __name__ == "__main__":
    send(Path(sys.argv[1]), sys.stdout)
