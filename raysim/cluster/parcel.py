"""Parcel of a run's folder, sent through the log of a job: packed on the head, checked here.

A job server hands back nothing but logs. `python -m raysim.cluster.parcel send DIR` writes the folder as lines of
base64 of a tar.gz, and a last line with size and SHA-256. `python -m raysim.cluster.parcel remove DIR` removes the
folder. Both run as jobs on the cluster's head.
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
from types import SimpleNamespace
from typing import IO, BinaryIO, TextIO, cast

from partitioning.common.disk import report_full_disk

LIMIT = 2**30
"""Largest size of a folder in bytes: the head keeps the logs of its jobs."""

PIECE = 3 * 2**14
"""Bytes a line: a multiple of three, which base64 writes without padding."""

DATA, END, ABSENT, REFUSED = "::parcel:: ", "::parcel-end:: ", "::parcel-absent::", "::parcel-refused:: "
"""Prefixes of the lines of a parcel."""

FOLDER = "raysim-"
"""Prefix of a job's folder on the cluster."""


class ParcelError(RuntimeError):
    """Failed transfer of a folder, which is still on the cluster."""


def send(folder: Path, stream: TextIO, limit: int = LIMIT) -> None:
    """Write a folder as lines, or one line with the reason for a refusal."""
    if not folder.is_dir():
        print(ABSENT, file=stream)
        return
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    if size > limit:
        print(f"{REFUSED}{size / 2**20:,.0f} MiB, and the limit is {limit / 2**20:,.0f} MiB", file=stream)
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


def receive(lines: Iterable[str], folder: Path, limit: int = LIMIT) -> bool:
    """Unpack the parcel of `send` after it has arrived whole and undamaged.

    Args:
        lines: lines of the job; other lines than the parcel's are ignored.
        folder: new folder; it appears complete, or not.
        limit: largest size in bytes.

    Returns:
        Whether the folder exists on the cluster.

    Raises:
        ParcelError: the parcel is too large, incomplete or damaged, or holds entries that no run writes.
        DiskFullError: this machine has no room for it.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    archive, draft = folder.with_name(f".{folder.name}.parcel"), folder.with_name(f".{folder.name}.draft")
    try:
        with report_full_disk(folder):
            with archive.open("wb") as file:
                there = _collect(lines, file)
            if there:
                with _damage_reported():
                    _unpack(archive, draft, limit)
                draft.rename(folder)
        return there
    finally:
        archive.unlink(missing_ok=True)
        shutil.rmtree(draft, ignore_errors=True)


def _collect(lines: Iterable[str], file: IO[bytes]) -> bool:
    """Write the parcel's bytes, and compare them with its last line."""
    sha256, size = hashlib.sha256(), 0
    for line in lines:
        if line.startswith(DATA):
            with _damage_reported():
                piece = b64decode(line.removeprefix(DATA))
            sha256.update(piece)
            size += file.write(piece)
        elif line.startswith(END):
            with _damage_reported():
                sent = json.loads(line.removeprefix(END))
            if sent != {"bytes": size, "sha256": sha256.hexdigest()}:
                raise ParcelError(f"its {size} bytes differ from those sent")
            return True
        elif line == ABSENT:
            return False
        elif line.startswith(REFUSED):
            raise ParcelError(f"it has {line.removeprefix(REFUSED)}")
    raise ParcelError(f"it breaks off after {size} bytes")


def _unpack(archive: Path, folder: Path, limit: int) -> None:
    """Unpack plain files and folders, and refuse entries outside of the folder."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    with tarfile.open(archive, "r:gz") as tar:
        for member in tar:
            path = PurePosixPath(member.name)
            limit -= member.size
            strange = path.is_absolute() or ".." in path.parts or not (member.isfile() or member.isdir())
            target = folder / path
            if strange or (target.exists() and not (member.isdir() and target.is_dir())) or limit < 0:
                raise ParcelError(f"no run writes its entry {member.name!r}, or one of that size")
            source = tar.extractfile(member)
            if source is None:
                target.mkdir(parents=True, exist_ok=True)
            else:
                target.parent.mkdir(parents=True, exist_ok=True)
                with source, target.open("wb") as file:
                    shutil.copyfileobj(source, file)


@contextmanager
def _damage_reported() -> Iterator[None]:
    """Turn errors of unreadable data in the context into a ParcelError."""
    try:
        yield
    except (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile, ValueError) as error:
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
