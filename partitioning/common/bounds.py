"""Bounds of data: what is larger is refused by the bound's name, before memory is taken for it."""

import os
from pathlib import Path

from partitioning.common.errors import InputError

MAX_ROWS = 2**28
"""Largest number of rows in a data set, 268 million."""

MAX_ROW_BYTES = 2**28
"""Largest size of one row, image file or text file, 256 MiB."""

MAX_COLUMNS = 2**16
"""Largest number of columns, 65,536; each takes ten kilobytes of memory in Arrow."""

MAX_BATCH_BYTES = 2**29
"""Largest size of a compressed Arrow batch when unpacked, 512 MiB; Arrow unpacks a batch as a whole."""

MAX_EXPANSION = 2**12
"""Largest number of decoded bytes for each byte of a file, 4,096; no real table repeats itself as often."""

ALWAYS_DECODED = 2**30
"""Decoded bytes up to which a file may expand as it likes, 1 GiB."""

MAX_PIXELS = 2**26
"""Largest number of pixels in an encoded image, 67 million; an image of 8192 x 8192 has as many."""

MEMORY_SHARE = 0.5
"""Largest share of the free memory for data that are held whole: a table, a client's decoded images."""

UNKNOWN_MEMORY = 4 * 2**30
"""Bytes that count as free on a system that does not tell."""

_CONTAINER = Path("/sys/fs/cgroup")


def check_bound(where: str, what: str, number: int, bound: str, remedy: str) -> None:
    """Raise InputError if the number of `what` in a file or column is larger than the bound of this name."""
    largest = globals()[bound]
    if number > largest:
        raise InputError(f"{where} has {number:,} {what}: at most {bound} = {largest:,} are read; {remedy}")


def check_row_count(where: str, rows: int) -> None:
    """Raise InputError if a data set has too many rows."""
    check_bound(where, "rows", rows, "MAX_ROWS", "split it into several data sets")


def check_column_count(where: str, columns: int) -> None:
    """Raise InputError if a data set has too many columns."""
    check_bound(where, "columns", columns, "MAX_COLUMNS", "store them as one column of lists of a fixed size")


def check_expansion(where: str, decoded: int, stored: int) -> None:
    """Raise InputError if the bytes decoded so far are too many for those of the file."""
    if decoded > ALWAYS_DECODED:
        what, remedy = "decoded bytes for each byte of the file", "export it again without values that repeat so often"
        check_bound(where, what, decoded // max(stored, 1), "MAX_EXPANSION", remedy)


def check_memory(where: str, needed: int) -> None:
    """Raise InputError if data that are held whole need too large a part of the free memory."""
    free = free_memory()
    if needed > MEMORY_SHARE * free:
        raise InputError(
            f"{where} needs {needed / 1e9:,.1f} GB of memory: at most MEMORY_SHARE = {MEMORY_SHARE} of the free "
            f"{free / 1e9:,.1f} GB is taken; give fewer or smaller samples, or use a machine with more memory"
        )


def free_memory() -> int:
    """Return the bytes of memory that this process may still take, by the machine and by its container."""
    try:
        free = _field(Path("/proc/meminfo"), "MemAvailable:") * 1024
    except (OSError, KeyError, ValueError):  # a system without /proc
        pages = getattr(os, "sysconf", None)
        free = pages("SC_PHYS_PAGES") * pages("SC_PAGE_SIZE") if pages else UNKNOWN_MEMORY  # Windows has no sysconf
    try:
        most = int((_CONTAINER / "memory.max").read_text())
        taken = _field(_CONTAINER / "memory.stat", "anon")  # not the files that the system keeps while there is room
    except (OSError, KeyError, ValueError):  # no container, or one without a limit
        return free
    return min(free, max(0, most - taken))


def _field(path: Path, name: str) -> int:
    """Return the number behind a name, one a line."""
    return int(dict(line.split()[:2] for line in path.read_text().splitlines())[name])
