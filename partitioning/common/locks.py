"""Locks of files between processes; a lock ends with its process."""

import sys
from typing import IO, Any

if sys.platform != "win32":
    import fcntl


def lock(file: IO[Any], *, wait: bool = True) -> None:
    """Lock an open file for this process. Windows has no such locks: there, nothing happens.

    Args:
        file: file to lock.
        wait: whether to wait until no other process holds the lock.

    Raises:
        BlockingIOError: another process holds the lock, and `wait` is false.
        OSError: the file system has no locks.
    """
    if sys.platform != "win32":
        fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
