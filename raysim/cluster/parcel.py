"""A run's folder through the log of a job, which is all that a job server hands back: packed there, checked here.

`python -m raysim.cluster.parcel send DIR` writes the folder as lines of base64 of a tar.gz, and a last line with its
size and sha256; `... remove DIR` removes it. Both run as jobs on the cluster's head.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import shutil
import sys
import tarfile
import zlib
from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO, BinaryIO, TextIO, cast

from partitioning.common.disk import report_full_disk

LIMIT = 2**30
"""Bytes that a folder may have in all its files: the head keeps the logs of its jobs."""

PIECE = 3 * 2**14
"""Bytes a line: a multiple of three, which base64 writes without padding."""

DATA, END, ABSENT, REFUSED = "::parcel:: ", "::parcel-end:: ", "::parcel-absent::", "::parcel-refused:: "
"""What the lines begin with that are of a parcel."""

FOLDER = "raysim-"
"""What the folder begins with in which a job's run is."""


class ParcelError(RuntimeError):
    """A folder did not arrive; it is still where it was."""


class _Lines:
    """A file that is only written to, whose bytes become lines."""

    def __init__(self, stream: TextIO) -> None:
        self._stream, self._held = stream, bytearray()
        self._sha256, self._size = hashlib.sha256(), 0

    def write(self, data: bytes) -> int:
        self._held += data
        while len(self._held) >= PIECE:
            self._line(PIECE)
        return len(data)

    def flush(self) -> None:
        """Lines are whole ones only, until `end`."""

    def end(self) -> None:
        if self._held:
            self._line(len(self._held))
        print(END + json.dumps({"bytes": self._size, "sha256": self._sha256.hexdigest()}), file=self._stream)

    def _line(self, size: int) -> None:
        piece = bytes(self._held[:size])
        del self._held[:size]
        self._sha256.update(piece)
        self._size += size
        print(DATA + b64encode(piece).decode("ascii"), file=self._stream)


def send(folder: Path, stream: TextIO, limit: int = LIMIT) -> None:
    """Write a folder as lines, or one that says why not."""
    if not folder.is_dir():
        print(ABSENT, file=stream)
        return
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    if size > limit:
        print(f"{REFUSED}{size / 2**20:,.0f} MiB, and at most {limit / 2**20:,.0f} are fetched", file=stream)
        return
    lines = _Lines(stream)
    # Fast: most of it, models and tables, hardly shrinks.
    with (
        gzip.GzipFile(fileobj=cast(BinaryIO, lines), mode="wb", compresslevel=1, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w|") as tar,
    ):
        tar.add(folder, arcname=".")
    lines.end()


def receive(lines: Iterable[str], folder: Path, limit: int = LIMIT) -> bool:
    """Unpack what `send` wrote, once it is all there and what was sent.

    Args:
        lines: of the job; those that are of no parcel are passed over.
        folder: must be new; is there as a whole or not at all.
        limit: bytes that it may have.

    Returns:
        whether there is anything: False where the folder to be sent is not there.

    Raises:
        ParcelError: it is too large, something is missing or was changed on the way, or it holds what a run's folder
            does not.
        DiskFullError: it has no room here.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    archive, draft = folder.with_name(f".{folder.name}.parcel"), folder.with_name(f".{folder.name}.draft")
    try:
        with report_full_disk(folder):
            with archive.open("wb") as file:
                there = _collect(lines, file)
            if there:
                with _sound():
                    _unpack(archive, draft, limit)
                draft.rename(folder)
        return there
    finally:
        archive.unlink(missing_ok=True)
        shutil.rmtree(draft, ignore_errors=True)


def _collect(lines: Iterable[str], file: IO[bytes]) -> bool:
    """Write the parcel's bytes, and compare them with what their last line says."""
    sha256, size = hashlib.sha256(), 0
    for line in lines:
        if line.startswith(DATA):
            with _sound():
                piece = b64decode(line.removeprefix(DATA))
            sha256.update(piece)
            size += file.write(piece)
        elif line.startswith(END):
            with _sound():
                sent = json.loads(line.removeprefix(END))
            if sent != {"bytes": size, "sha256": sha256.hexdigest()}:
                raise ParcelError(f"its {size} bytes are not those that were sent")
            return True
        elif line == ABSENT:
            return False
        elif line.startswith(REFUSED):
            raise ParcelError(f"it has {line.removeprefix(REFUSED)}")
    raise ParcelError(f"it breaks off after {size} bytes")


def _unpack(archive: Path, folder: Path, limit: int) -> None:
    """Unpack plain files and folders, inside of the folder alone."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    with tarfile.open(archive, "r:gz") as tar:
        for member in tar:
            path = PurePosixPath(member.name)
            limit -= member.size
            strange = path.is_absolute() or ".." in path.parts or not (member.isfile() or member.isdir())
            target = folder / path
            if strange or (target.exists() and not (member.isdir() and target.is_dir())) or limit < 0:
                raise ParcelError(f"{member.name!r} in it is nothing that a run leaves")
            source = tar.extractfile(member)
            if source is None:
                target.mkdir(parents=True, exist_ok=True)
            else:
                target.parent.mkdir(parents=True, exist_ok=True)
                with source, target.open("wb") as file:
                    shutil.copyfileobj(source, file)


@contextmanager
def _sound() -> Iterator[None]:
    """Within, what cannot be read of a parcel is no parcel."""
    try:
        yield
    except (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile, ValueError) as error:
        raise ParcelError(f"it is damaged ({' '.join(str(error).split())})") from error


def remove(folder: Path) -> None:
    """Remove the folder that was made for a job's run, with the run in it."""
    if folder.parent.name.startswith(FOLDER):
        shutil.rmtree(folder.parent, ignore_errors=True)


if __name__ == "__main__":
    what, where = sys.argv[1:]
    if what == "send":
        send(Path(where), sys.stdout)
    elif what == "remove":
        remove(Path(where))
    else:
        sys.exit(f"{what!r}: must be send or remove")
