"""Writing files whole or not at all, reporting a full disk in one line, and locks between processes."""

import errno
import shutil
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from glob import escape
from pathlib import Path
from typing import IO, Any

if sys.platform != "win32":
    import fcntl

FULL_ERRNOS = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}

FULL_MESSAGES = ("No space left on device", "Disk quota exceeded", "File too large")
"""Messages of libraries whose errors have no number."""

_OLD = 24 * 60 * 60.0  # seconds after its last change in which no process still writes a draft

_SHOWN = 25  # characters of a file's name in its draft's: with 4 bytes each, the draft's name is still short enough


class DiskFullError(OSError):
    """A full disk: the new file or folder does not exist, and earlier ones stay."""


@contextmanager
def report_full_disk(path: Path) -> Iterator[None]:
    """Turn a full disk in the block, which writes to `path`, into DiskFullError.

    Raises:
        DiskFullError: the disk is full; the message has the path, the free space and the remedy.
    """
    try:
        yield
    except DiskFullError:
        raise
    except Exception as error:  # libraries raise their own errors
        if not _is_full(error):
            raise
        reason = next((text for text in FULL_MESSAGES if text in str(error)), "no space is left")
        raise DiskFullError(
            f"{path} cannot be written ({reason}; {_free(path)} are free there): make room, or choose another place"
        ) from error


@contextmanager
def write_whole(path: Path) -> Iterator[Path]:
    """Yield an absolute draft path that becomes `path` at the end; a failure removes it.

    Each writer has a draft of its own. If several processes write one file, the last of them wins.

    Raises:
        DiskFullError: the disk is full.
    """
    stem, suffix = f".{path.stem[:_SHOWN]}.", f".partial{path.suffix[:_SHOWN]}"
    # Arrow takes a relative path such as `file:x/y` for an address.
    folder = path.absolute().parent
    draft = folder / f"{stem}{uuid.uuid4().hex[:8]}{suffix}"
    try:
        with report_full_disk(path):
            _remove_old(folder, f"{escape(stem)}{'[0-9a-f]' * 8}{escape(suffix)}")
            yield draft
            # Some libraries write files that only the owner may read.
            draft.chmod(0o644)
            draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def lock(file: IO[Any], *, wait: bool = True) -> None:
    """Lock an open file for this process, whose end frees it. Windows has no such locks: there, nothing happens.

    Args:
        wait: whether to wait until no other process holds the lock.

    Raises:
        BlockingIOError: another process holds the lock, and `wait` is false.
        OSError: the file system has no locks.
    """
    if sys.platform != "win32":
        fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))


def _remove_old(folder: Path, pattern: str) -> None:
    """Remove the drafts of killed processes by their age: file systems of clusters may have no locks."""
    for draft in folder.glob(pattern):
        with suppress(OSError):
            if time.time() - draft.stat().st_mtime > _OLD:
                draft.unlink()


def _is_full(error: Exception) -> bool:
    return getattr(error, "errno", None) in FULL_ERRNOS or any(text in str(error) for text in FULL_MESSAGES)


def _free(path: Path) -> str:
    there = next(folder for folder in path.absolute().parents if folder.exists())
    return f"{shutil.disk_usage(there).free / 1e6:,.1f} MB"
