"""NumPy archives: .npz files whose arrays are the columns."""

import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from partitioning.common.errors import InputError
from partitioning.sources.source import BATCH_BYTES, reading

Values = npt.NDArray[Any]


@dataclass(frozen=True)
class _Header:
    # What an array is, from the beginning of its file.
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    by_column: bool  # Fortran's order: its rows are not one after the other

    @property
    def row_bytes(self) -> int:
        return prod(self.shape[1:]) * self.dtype.itemsize


class ArraysSource:
    """An .npz file: each array is a column, its first dimension the sample.

    Arrays [N, ...] become nested fixed-size lists. They are read a few rows at a time; one in Fortran's order
    is held whole, as its rows are not stored one after the other. Nothing is unpickled.
    """

    def __init__(self, path: Path) -> None:
        """Read the arrays' headers; raises InputError where they are not columns of one table."""
        self._path = path
        self.name = path.absolute().name
        with _reading(path), zipfile.ZipFile(path) as archive:
            self._headers = {name: _header(archive, name) for name in _names(archive)}
            for name, header in self._headers.items():
                _check(f"the array {name!r} of {path}", header)
            self._check_lengths()
            self.schema = pa.schema([(name, _type(header)) for name, header in self._headers.items()])

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """Give all rows in order; arrays that are not asked for are not read."""
        names = self.schema.names if columns is None else list(columns)
        schema = pa.schema([self.schema.field(name) for name in names])
        row_bytes = sum(self._headers[name].row_bytes for name in names)
        rows = max(1, BATCH_BYTES // max(row_bytes, 1))
        with _reading(self._path), zipfile.ZipFile(self._path) as archive, ExitStack() as stack:
            parts = [_parts(stack.enter_context(archive.open(f"{name}.npy")), rows) for name in names]
            for arrays in zip(*parts, strict=True):
                yield pa.RecordBatch.from_arrays([_arrow(array) for array in arrays], schema=schema)

    def _check_lengths(self) -> None:
        lengths = {name: header.shape[0] for name, header in self._headers.items()}
        if len(set(lengths.values())) > 1:
            said = ", ".join(f"{name!r} {length}" for name, length in lengths.items())
            raise InputError(f"{self._path} has arrays of different lengths ({said}): give each one entry a sample")


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    with reading(path, "NumPy's .npz"):
        try:
            yield
        except (InputError, pa.ArrowException):
            raise
        except (zipfile.BadZipFile, zlib.error, ValueError, EOFError, NotImplementedError, RuntimeError) as error:
            raise OSError(error) from error


def _names(archive: zipfile.ZipFile) -> list[str]:
    members = archive.namelist()
    for member in members:
        if not member.endswith(".npy"):
            raise ValueError(f"{member!r} is no array")
    return [member.removesuffix(".npy") for member in members]


def _header(archive: zipfile.ZipFile, name: str) -> _Header:
    with archive.open(f"{name}.npy") as stream:
        return _read_header(stream)


def _read_header(stream: IO[bytes]) -> _Header:
    version = np.lib.format.read_magic(stream)
    read = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}.get(version)
    if read is None:
        raise ValueError(f"an array in version {version} of the format")
    shape, by_column, dtype = read(stream)
    return _Header(shape, dtype, by_column)


def _check(what: str, header: _Header) -> None:
    if header.dtype.kind not in "biufUSM":
        raise InputError(f"{what} is of type {header.dtype}: save numbers, booleans, times or text")
    if not header.shape or 0 in header.shape[1:]:
        raise InputError(f"{what} has the shape {list(header.shape)}: give one entry a sample, each with a value")


def _parts(stream: IO[bytes], rows: int) -> Iterator[Values]:
    # The array, so many rows at a time; the archive's own checksum is tested where it ends.
    header = _read_header(stream)
    if header.by_column:
        content = _read(stream, header.shape[0] * header.row_bytes)
        whole = np.frombuffer(content, header.dtype).reshape(header.shape, order="F")
    for start in range(0, header.shape[0], rows):
        end = min(start + rows, header.shape[0])
        if header.by_column:
            yield whole[start:end]
        else:
            content = _read(stream, (end - start) * header.row_bytes)
            yield np.frombuffer(content, header.dtype).reshape(-1, *header.shape[1:])
    if stream.read(1):
        raise ValueError("an array is longer than it says")


def _read(stream: IO[bytes], size: int) -> bytes:
    content = stream.read(size)
    if len(content) < size:
        raise EOFError("an array ends too early")
    return content


def _arrow(values: Values) -> pa.Array:
    native = values.astype(values.dtype.newbyteorder("="), copy=False)  # Arrow knows only the machine's own order
    array = pa.array(np.ascontiguousarray(native).reshape(-1))
    for size in reversed(values.shape[1:]):
        array = pa.FixedSizeListArray.from_arrays(array, size)
    return array


def _type(header: _Header) -> pa.DataType:
    return _arrow(np.empty((0, *header.shape[1:]), header.dtype)).type
