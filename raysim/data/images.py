"""Encoded images as arrays of pixels."""

import io

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from PIL import Image

from raysim.errors import InputError

FORMATS = ("JPEG", "PNG", "WEBP")
"""What is decoded: Pillow reads more formats, of which some run other programs."""

_TARGET = {"1": "L", "L": "L", "P": "RGB", "RGB": "RGB", "CMYK": "RGB", "YCbCr": "RGB"}

Pixels = npt.NDArray[np.uint8]


def encoded(column: pa.Array) -> pa.Array:
    """Return the bytes of a column of encoded images.

    Args:
        column: struct<bytes: binary, path: string>, or plain binary.
    """
    return pc.struct_field(column, "bytes") if pa.types.is_struct(column.type) else column


def paths(column: pa.Array) -> list[str | None]:
    """Return the files' names of a column of encoded images, where it has them."""
    if pa.types.is_struct(column.type) and column.type.get_field_index("path") >= 0:
        names: list[str | None] = pc.struct_field(column, "path").to_pylist()
        return names
    return [None] * len(column)


def pixels(data: bytes | None, where: str) -> Pixels:
    """Return one image's pixels: uint8 [1, height, width] where it is grey, [3, height, width] where not.

    Args:
        data: the file's content: JPEG, PNG or WebP; None where the table has only the file's path.
        where: the image, for the message.

    Raises:
        InputError: the file is damaged or of another format, or the image is transparent or too deep.
    """
    if data is None:
        raise InputError(f"{where} has no bytes, at most a path: put the files' contents into the table")
    try:
        with Image.open(io.BytesIO(data), formats=FORMATS) as image:
            target = None if image.has_transparency_data else _TARGET.get(image.mode)
            mode = image.mode
            values = np.asarray(image.convert(target) if target else image)
    except Exception as error:
        # Of any class: a decoder raises what it trips over, OSError, SyntaxError, struct.error and more.
        reason = str(error).partition("\n")[0].partition(" <_io")[0] or type(error).__name__
        raise InputError(
            f"{where} cannot be decoded ({reason}): give a whole JPEG, PNG or WebP file, or drop the row"
        ) from error
    if target is None:
        raise InputError(f"{where} is transparent or deeper than 8 bits (mode {mode}): convert it to grey (L) or RGB")
    return values[np.newaxis] if target == "L" else values.transpose(2, 0, 1)
