"""Paths of a user: one check of their text, one way to open files that never blocks, and the cache folder."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Sequence
from io import BufferedReader
from pathlib import Path
from typing import TYPE_CHECKING

from partitioning.common.errors import InputError

if TYPE_CHECKING:
    import pyarrow as pa

LONGEST_PATH = 4095
"""Largest number of bytes in a path, Linux's PATH_MAX without the final zero."""

LONGEST_NAME = 255
"""Largest number of bytes in the name of a file or folder, the limit of all common file systems."""

_FLAGS = os.O_RDONLY | sum(getattr(os, name, 0) for name in ("O_NONBLOCK", "O_NOCTTY", "O_CLOEXEC", "O_BINARY"))
# Without O_NONBLOCK, opening a named pipe would wait for a writer. Each system has some of these flags.

_SHOWN = 60  # characters of a wrong path that a message quotes
_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def check_path(key: str, text: str | os.PathLike[str]) -> Path:
    """Return the path that a user's text names, as the value of a key or option; it need not exist.

    Raises:
        InputError: the text is empty, has a zero byte, is not UTF-8, or is longer than a path may be, or the path has
            a loop of links.
    """
    path = os.fspath(text)
    if fault := _fault(path):
        shown = ascii(path[:_SHOWN])[: _SHOWN + 2] + ("..." if len(path) > _SHOWN else "")
        raise InputError(f"{key} = {shown}: must be a path, and {fault}; correct it")
    return Path(path)


def expanded(key: str, text: str) -> Path:
    """Return a checked path with `~` as the user's folder; raise InputError as `check_path` does."""
    try:
        return check_path(key, text).expanduser()
    except RuntimeError as error:
        raise InputError(f"{key} = {text[:_SHOWN]!r}: must be a path, and there is no such user; correct it") from error


def absolute(key: str, *parts: str) -> Path:
    """Return an absolute path without links; raise InputError as `check_path` does.

    Args:
        key: name of the key, for the message.
        parts: parts of the path; a part that is absolute discards those before it. Empty parts count as the current
            folder.
    """
    return check_path(key, Path(*(expanded(key, part or ".") for part in parts))).resolve()


def open_regular(path: str | os.PathLike[str]) -> BufferedReader:
    """Open a regular file to read its bytes.

    The file is judged after it was opened, so that nobody can exchange it in between.

    Raises:
        OSError: there is no such file, it cannot be read, or it is a folder, a pipe, a socket or a device.
    """
    try:
        descriptor = os.open(path, _FLAGS)
    except ValueError as error:  # a zero byte, or no UTF-8
        raise OSError(errno.EINVAL, f"its name is no path: {error}", ascii(path)) from None
    kind = stat.S_IFMT(os.fstat(descriptor).st_mode)
    if kind != stat.S_IFREG:
        os.close(descriptor)
        raise OSError(errno.EINVAL, f"it is {_KINDS.get(kind, 'something else')}, not a regular file", os.fspath(path))
    return os.fdopen(descriptor, "rb")


def regular(path: str | os.PathLike[str]) -> Path:
    """Return the absolute path of a regular file, for a library that opens files by their paths.

    Arrow takes a relative path such as `file:x/y` for an address.

    Raises:
        OSError: see `open_regular`.
    """
    with open_regular(path):
        return Path(path).absolute()


def read_bytes(path: str | os.PathLike[str]) -> bytes:
    """Return the bytes of a regular file; raise OSError like `open_regular`."""
    with open_regular(path) as file:
        return file.read()


def read_text(path: str | os.PathLike[str], encoding: str = "utf-8") -> str:
    """Return the text of a regular file, with line feeds at the ends of lines.

    Raises:
        OSError: see `open_regular`.
        UnicodeDecodeError: the file has another encoding.
    """
    return read_bytes(path).decode(encoding).replace("\r\n", "\n").replace("\r", "\n")


def read_parquet(path: Path, columns: Sequence[str] | None = None, memory_map: bool = False) -> pa.Table:
    """Return a Parquet file's table; Arrow alone would take a folder named `lr=0.1` above it for a column.

    Raises:
        OSError: see `open_regular`.
        pyarrow.ArrowException: the file is no Parquet table.
    """
    import pyarrow.parquet as pq

    given = None if columns is None else list(columns)
    return pq.read_table(regular(path), columns=given, partitioning=None, memory_map=memory_map)


def cache() -> Path:
    """Return the cache folder of both packages: RAYSIM_CACHE, or `raysim` in XDG_CACHE_HOME, or in ~/.cache."""
    if own := os.environ.get("RAYSIM_CACHE"):
        return Path(own).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "raysim"


def _fault(path: str) -> str:
    if not path:
        return "is empty"
    if "\0" in path:
        return "has a zero byte"
    try:
        names = [len(name.encode("utf-8")) for name in path.split("/")]
        Path(path).resolve()
    except UnicodeEncodeError:
        return "is not UTF-8"
    except (RuntimeError, OSError) as error:
        return f"cannot be followed ({getattr(error, 'strerror', None) or 'a loop of links'})"
    if sum(names) + len(names) - 1 > LONGEST_PATH:
        return f"has more than {LONGEST_PATH} bytes"
    return f"has a name of {max(names)} bytes, more than {LONGEST_NAME}" if max(names) > LONGEST_NAME else ""
