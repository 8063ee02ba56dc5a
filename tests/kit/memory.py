"""Memory of a test process: given back to the system when it has grown."""

from __future__ import annotations

import ctypes
import gc
import resource
from contextlib import suppress
from pathlib import Path

import pyarrow as pa

GROWTH = 2**27
"""Bytes by which a process may grow before its memory is given back."""


class Memory:
    """Memory of this process.

    Errors, and modules of torch, are in circles that hold models until someone searches for garbage; and the C library
    and Arrow keep what is freed. A search passes over the million objects that were there at the last one, such as
    modules.
    """

    def __init__(self) -> None:
        self._resident = self._frozen = 0

    def look(self) -> None:
        """Give memory back if the process has grown."""
        if _resident() > self._resident + GROWTH:
            self.give_back()

    def give_back(self) -> None:
        """Collect garbage, and give all that is free back to the system."""
        if gc.get_freeze_count() > self._frozen:  # a command ran in this process, and froze the garbage there was
            gc.unfreeze()
        gc.collect()
        gc.freeze()
        pa.default_memory_pool().release_unused()
        with suppress(OSError, AttributeError):  # only glibc has it
            ctypes.CDLL("libc.so.6").malloc_trim(0)
        self._resident, self._frozen = _resident(), gc.get_freeze_count()


def _resident() -> int:
    """Return the bytes of this process in memory; 0 where the system does not say."""
    with suppress(OSError):
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    return 0
