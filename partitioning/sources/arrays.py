"""NumPy archives: .npz files; each array is a column."""

import io
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from math import prod
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from partitioning.common.bounds import check_bound, check_memory, check_row_count
from partitioning.common.errors import InputError
from partitioning.common.paths import regular
from partitioning.sources.source import BATCH_BYTES, Source, StreamedSource, reading

Values = npt.NDArray[Any]
Header = tuple[tuple[int, ...], bool, "np.dtype[Any]"]
"""Shape, Fortran order, and type of an array."""

_HEADER_BYTES = 2**14  # above the 10,000 of a header that NumPy takes


def open_arrays(path: Path) -> Source:
    """Open an .npz file: each array is a column, its first dimension the sample.

    Arrays [N, ...] become nested fixed-size lists and are read a few rows at a time. An array in Fortran order is held
    whole, because its rows are not contiguous. Nothing is unpickled.

    Raises:
        InputError: the arrays are not columns of one table.
    """
    with _reading(path), zipfile.ZipFile(regular(path)) as archive:
        headers = {name: _open_header(archive, name) for name in _names(archive)}
        for name, header in headers.items():
            check_array(f"the array {name!r} of {path}", header)
        _check_lengths(path, headers)
        schema = pa.schema([(name, _type(header)) for name, header in headers.items()])

    def read(names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        wanted = pa.schema([schema.field(name) for name in names])
        rows = max(1, BATCH_BYTES // max(sum(_row_bytes(headers[name]) for name in names), 1))
        with _reading(path), zipfile.ZipFile(regular(path)) as archive, ExitStack() as stack:
            parts = [_parts(stack.enter_context(archive.open(f"{name}.npy")), rows) for name in names]
            for arrays in zip(*parts, strict=True):
                yield pa.RecordBatch.from_arrays([nested(array) for array in arrays], schema=wanted)

    return StreamedSource(path.absolute().name, schema, read)


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    with reading(path, "NumPy's .npz"):
        try:
            yield
        except (InputError, pa.ArrowException, OSError, MemoryError):
            raise
        except Exception as error:  # NumPy and the unpackers may raise anything
            raise OSError(error) from error


def _names(archive: zipfile.ZipFile) -> list[str]:
    members = archive.namelist()
    for member in members:
        if not member.endswith(".npy"):
            raise ValueError(f"{member!r} is no array")
    return [member.removesuffix(".npy") for member in members]


def _open_header(archive: zipfile.ZipFile, name: str) -> Header:
    # A header may say that it is gigabytes long, and NumPy would read it all before it refuses it.
    with archive.open(f"{name}.npy") as stream:
        return _read_header(io.BytesIO(stream.read(_HEADER_BYTES)))


def _read_header(stream: IO[bytes]) -> Header:
    version = np.lib.format.read_magic(stream)
    read = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}.get(version)
    if read is None:
        raise ValueError(f"an array in version {version} of the format")
    return read(stream)


def _row_bytes(header: Header) -> int:
    shape, _, dtype = header
    return prod(shape[1:]) * dtype.itemsize


def check_array(title: str, header: Header) -> None:
    """Raise InputError if an array cannot be a column: its type, an empty shape, too many or too large rows."""
    shape, is_fortran, dtype = header
    if dtype.kind not in "biufUSM":
        raise InputError(f"{title} is of type {dtype}: save numbers, booleans, times or text")
    if not shape or min(shape) < 0 or 0 in shape[1:]:
        raise InputError(f"{title} has the shape {list(shape)}: give one entry per sample, each with a value")
    check_row_count(title, shape[0])
    check_bound(title, "bytes a row", _row_bytes(header), "MAX_ROW_BYTES", "give smaller samples")
    if is_fortran:  # it is held whole
        check_memory(title, shape[0] * _row_bytes(header))


def _check_lengths(path: Path, headers: dict[str, Header]) -> None:
    lengths = {name: shape[0] for name, (shape, _, _) in headers.items()}
    if len(set(lengths.values())) > 1:
        listed = ", ".join(f"{name!r} {length}" for name, length in lengths.items())
        raise InputError(f"{path} has arrays of different lengths ({listed}): give each array one entry per sample")


def _parts(stream: IO[bytes], rows: int) -> Iterator[Values]:
    # Yield the array `rows` rows at a time; reading to the end makes the archive test its checksum.
    header = _read_header(stream)
    shape, is_fortran, dtype = header
    if is_fortran:
        content = _read(stream, shape[0] * _row_bytes(header))
        whole = np.frombuffer(content, dtype).reshape(shape, order="F")
    for start in range(0, shape[0], rows):
        end = min(start + rows, shape[0])
        if is_fortran:
            yield whole[start:end]
        else:
            content = _read(stream, (end - start) * _row_bytes(header))
            yield np.frombuffer(content, dtype).reshape(-1, *shape[1:])
    if stream.read(1):
        raise ValueError("an array is longer than it says")


def _read(stream: IO[bytes], size: int) -> bytes:
    content = stream.read(size)
    if len(content) < size:
        raise EOFError("an array ends too early")
    return content


def nested(values: Values) -> pa.Array:
    """Return an array [N, ...] as N nested fixed-size lists; without a copy if it is C-contiguous."""
    native = values.astype(values.dtype.newbyteorder("="), copy=False)  # Arrow knows only the machine's byte order
    array = pa.array(np.ascontiguousarray(native).reshape(-1))
    for size in reversed(values.shape[1:]):
        array = pa.FixedSizeListArray.from_arrays(array, size)
    return array


def _type(header: Header) -> pa.DataType:
    shape, _, dtype = header
    return nested(np.empty((0, *shape[1:]), dtype)).type
