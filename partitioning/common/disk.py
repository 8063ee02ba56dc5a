"""Files that are there as a whole or not at all, and a full disk told in one line, whatever was being written."""

import errno
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}

SAID = ("No space left on device", "Disk quota exceeded", "File too large")
"""What libraries say whose errors have no number."""


class DiskFullError(OSError):
    """The disk is full: what was being written is not there, and what was there before stays."""


@contextmanager
def report_full_disk(path: Path) -> Iterator[None]:
    """Within, a file or folder is written.

    Raises:
        DiskFullError: the disk is full; says what could not be written, how much is free, and what helps.
    """
    try:
        yield
    except DiskFullError:
        raise
    except Exception as error:  # libraries have errors of their own for it
        if not _is_full(error):
            raise
        reason = next((said for said in SAID if said in str(error)), "no space is left")
        raise DiskFullError(
            f"{path} cannot be written ({reason}; {_free(path)} are free there): make room, or choose another place"
        ) from error


@contextmanager
def write_whole(path: Path) -> Iterator[Path]:
    """A path to write to, which becomes `path` when it is complete; DiskFullError and nothing left where it is not."""
    aside = path.with_name(f".{path.stem}.partial{path.suffix}")
    try:
        with report_full_disk(path):
            yield aside
            # Some libraries write files that only their owner may read.
            aside.chmod(0o644)
            aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)


def _is_full(error: Exception) -> bool:
    return getattr(error, "errno", None) in FULL or any(said in str(error) for said in SAID)


def _free(path: Path) -> str:
    there = next(folder for folder in path.absolute().parents if folder.exists())
    return f"{shutil.disk_usage(there).free / 1e6:,.1f} MB"
