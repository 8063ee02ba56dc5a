"""Parcel of a run's folder, sent through the log of a job: packed on the head, unpacked here.

A job server hands back nothing but logs. `python -m raysim.cluster.parcel DIR`, a job on the cluster's head, writes the
folder's tar archive as lines, each a compressed piece in base64, and a last line with the archive's SHA-256.
"""

import hashlib
import io
import os
import sys
import tarfile
import zlib
from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import BinaryIO, TextIO, cast

from partitioning.common.disk import report_full_disk
from raysim.common.files import sync

LIMIT = 2**30  # bytes of a folder: the head keeps the logs of its jobs
ENTRY = 2**15  # bytes that a file or folder counts beside its content, far more than its header in the archive
READ = 2**16  # most bytes that the archive's reader may ask for: a header is small, and files are read in pieces
PIECE = 3 * 2**14  # bytes of the archive in a line

DATA, END, REFUSED = "::parcel:: ", "::parcel-end:: ", "::parcel-refused:: "
"""Prefixes of the lines of a parcel."""


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
    """Write a folder as lines, or one line with the reason for a refusal; without a folder the archive is empty."""
    size = sum(ENTRY + (path.stat().st_size if path.is_file() else 0) for path in (folder, *folder.rglob("*")))
    if size > limit:
        print(f"{REFUSED}{size / 2**20:,.0f} MiB, and the limit is {limit / 2**20:,.0f} MiB", file=stream)
        return
    lines = _Lines(stream)
    if folder.is_dir():
        with tarfile.open(fileobj=cast(BinaryIO, lines), mode="w|", bufsize=PIECE, format=tarfile.GNU_FORMAT) as tar:
            tar.add(folder, arcname=".")
    print(END + lines.sha256.hexdigest(), file=stream)


@contextmanager
def received(lines: Iterable[str], folder: Path, limit: int = LIMIT) -> Iterator[Path | None]:
    """Yield a draft of the folder that `send` packed, which appears at the end of the context; None without one.

    Raises:
        FetchError: the parcel is over the limit, incomplete or damaged, or holds entries that no run writes.
        DiskFullError: this machine has no room for it.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix=".parcel-", dir=folder.parent) as name, report_full_disk(folder):
        archive, draft = Path(name, "archive"), Path(name, "run")
        if not _collect(lines, archive, limit):
            yield None
            return
        draft.mkdir()
        with _damage_reported(), _Archive(archive) as file, tarfile.open(fileobj=file, mode="r:") as tar:
            tar.extractall(draft, filter=_PlainEntries(limit))
        yield draft
        # The cluster's copy is removed next, so a power failure must not take this one.
        sync(*draft.rglob("*"), draft)
        draft.rename(folder)
        sync(folder.parent)


def _collect(lines: Iterable[str], archive: Path, limit: int) -> int:
    """Write a parcel's archive, compare its digest, and return its size."""
    sha256, size, read = hashlib.sha256(), 0, 0
    with archive.open("wb") as file:
        for line in lines:
            read += len(line) + 1
            if size > limit or read > 2 * limit:  # base64 takes a third more than the bytes
                raise FetchError(f"it has more than {limit:,} bytes")
            if line.startswith(DATA):
                with _damage_reported():
                    piece = zlib.decompress(b64decode(line.removeprefix(DATA)))
                sha256.update(piece)
                size += file.write(piece)
            elif line.startswith(REFUSED):
                raise FetchError(f"it has {line.removeprefix(REFUSED)}")
            elif line.startswith(END):
                if line != END + sha256.hexdigest():
                    raise FetchError(f"its {size} bytes differ from those sent")
                return size
    raise FetchError(f"it breaks off after {size} bytes")


@contextmanager
def _damage_reported() -> Iterator[None]:
    """Turn errors of unreadable data, and of names that no file may have, in the context into a FetchError."""
    try:
        yield
    except (tarfile.TarError, zlib.error, ValueError, OSError, OverflowError, RecursionError) as error:
        raise FetchError(f"it is damaged ({' '.join(str(error).split())[:200]})") from error


class _Archive(io.FileIO):
    """Archive whose headers cannot make its reader take much memory, or read on from a negative size."""

    def read(self, size: int | None = -1, /) -> bytes:
        if size is None or not 0 <= size <= READ:
            raise FetchError(f"an entry's header has more than {READ:,} bytes")
        return super().read(size)


class _PlainEntries:
    """Filter of an archive: new plain files and folders with printable names, up to a limit of size."""

    def __init__(self, limit: int) -> None:
        self.room, self.names = limit, set[str]()

    def __call__(self, member: tarfile.TarInfo, place: str, /) -> tarfile.TarInfo:
        safe, name = tarfile.data_filter(member, place), os.path.normpath(member.name)
        self.room -= ENTRY + member.size
        plain = (member.isfile() or member.isdir()) and not member.issparse() and safe.name == member.name
        if not plain or not name.isprintable() or name in self.names or self.room < 0:
            raise FetchError(f"no run writes its entry {name[:100]!r}, or one of that size or number")
        self.names.add(name)
        # Permissions and times are those of new files here.
        return safe.replace(mode=None, mtime=None, deep=False)  # type: ignore[arg-type]


if __name__ == "__main__":
    send(Path(sys.argv[1]), sys.stdout)
