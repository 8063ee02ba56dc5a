"""MNIST's files: images and labels of digits, in the form IDX."""

import gzip
import math
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from raysim.data.arrays import nested
from raysim.data.fetching import damaged, missing
from raysim.data.reading import check_labels, check_rows

SIDE = 28
"""Height and width of all images."""

Bytes = npt.NDArray[np.uint8]


def read_idx(folder: Path, part: str, source: str) -> pa.Table:
    """Return `image`, 1x28x28 uint8, and `label`, int64, 0 to 9.

    Args:
        folder: has `PART-images-idx3-ubyte` and `PART-labels-idx1-ubyte`, as they are or packed (.gz).
        part: "train" or "t10k".
        source: where the files come from, for the message.

    Raises:
        InputError: a file is missing or damaged, or the two do not go together.
    """
    images = _values(folder / f"{part}-images-idx3-ubyte", (SIDE, SIDE), source)
    path = folder / f"{part}-labels-idx1-ubyte"
    labels = _values(path, (), source)
    if len(images) != len(labels):
        raise damaged(path, f"{len(labels)} labels of {len(images)} images")
    return digits_table(images[:, np.newaxis], labels, path)


def digits_table(images: Bytes, labels: npt.NDArray[Any], path: Path) -> pa.Table:
    """A table of images [n, channels, height, width] and their labels [n], 0 to 9; `path` is for the message."""
    table = pa.table({"image": nested(images), "label": np.asarray(labels).astype(np.int64)})
    check_rows(table, str(path))
    check_labels(table["label"], path, 0, 9)
    return table


def _values(path: Path, shape: tuple[int, ...], source: str) -> Bytes:
    """A file's values: 0, 0, 8 for bytes, the number of dimensions, these as big-endian numbers, the values."""
    packed = path.with_name(f"{path.name}.gz")
    if not (path.is_file() or packed.is_file()):
        raise missing(path.parent, packed.name, source)
    path = path if path.is_file() else packed
    try:
        data = gzip.decompress(path.read_bytes()) if path == packed else path.read_bytes()
        sizes = struct.unpack_from(f">{1 + len(shape)}I", data, 4)
    except (EOFError, OSError, struct.error, zlib.error) as error:
        raise damaged(path, str(error).partition("\n")[0]) from error
    start = 4 + 4 * len(sizes)
    if data[:4] != bytes([0, 0, 8, len(sizes)]) or sizes[1:] != shape or len(data) != start + math.prod(sizes):
        raise damaged(path, f"{len(data)} bytes, which are not {sizes[0]} x {shape} with a header of {start}")
    return np.frombuffer(data, np.uint8, offset=start).reshape(sizes)
