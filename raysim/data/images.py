"""Images as arrays of pixels, decoded, converted and resized."""

import io
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from PIL import Image

from raysim.common.errors import InputError

FORMATS = ("JPEG", "PNG", "WEBP")
"""What is decoded: Pillow reads more formats, of which some run other programs."""

_TARGET = {"1": "L", "L": "L", "P": "RGB", "RGB": "RGB", "CMYK": "RGB", "YCbCr": "RGB"}

Pixels = npt.NDArray[np.uint8]

LUMA = np.array([299, 587, 114]) / 1000
"""What red, green and blue weigh in the grey of a colour (ITU-R 601), as Pillow has it."""


def is_image(shape: tuple[int, ...]) -> bool:
    """Say whether a sample of this shape is a grey or colour image, channels first."""
    return len(shape) == 3 and shape[0] in (1, 3)


@dataclass(frozen=True)
class Picture:
    """What all images are made: grey or colour first, then of one size, by Pillow's bilinear filter.

    Args:
        size: height and width in pixels; None leaves each as it is.
        channels: 3 repeats a grey channel, 1 takes a colour's luma; None leaves each as it is.
    """

    size: tuple[int, int] | None = None
    channels: int | None = None

    def __bool__(self) -> bool:
        return self.size is not None or self.channels is not None

    def __str__(self) -> str:
        size = () if self.size is None else (f"{self.size[0]}x{self.size[1]}",)
        return "".join(f"-{part}" for part in (*size, *(() if self.channels is None else (f"c{self.channels}",))))

    def shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape that images [channels, height, width] come to."""
        return (self.channels or shape[0], *(self.size or shape[1:]))

    def of_image(self, image: Image.Image) -> Image.Image:
        """Make a grey or RGB image of Pillow's so."""
        if self.channels is not None:
            image = image.convert("L" if self.channels == 1 else "RGB")
        return image if self.size is None else image.resize(self.size[::-1], Image.Resampling.BILINEAR)

    def of_arrays(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Make arrays [n, 1 or 3, height, width] so: uint8 as images are, floats by the same formulas, unrounded."""
        made = np.empty((len(values), *self.shape(values.shape[1:])), values.dtype)
        for row, image in enumerate(values):
            if values.dtype == np.uint8:
                whole = Image.fromarray(image[0] if len(image) == 1 else np.ascontiguousarray(image.transpose(1, 2, 0)))
                made[row] = _channels_first(self.of_image(whole))
            else:
                made[row] = self._of_floats(image)
        return made

    def _of_floats(self, image: npt.NDArray[Any]) -> npt.NDArray[Any]:
        if self.channels == 1 and len(image) == 3:
            image = np.tensordot(LUMA, image, 1)[None]
        planes = image if self.size is None else np.stack([self._resized(plane) for plane in image])
        return np.broadcast_to(planes, self.shape(image.shape))

    def _resized(self, plane: npt.NDArray[Any]) -> npt.NDArray[Any]:
        size = (self.size or plane.shape)[::-1]
        return np.asarray(Image.fromarray(plane.astype(np.float32)).resize(size, Image.Resampling.BILINEAR))


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


def pixels(data: bytes | None, where: str, picture: Picture = Picture()) -> Pixels:
    """Return one image's pixels: uint8 [1, height, width] where it is grey, [3, height, width] where not.

    Args:
        data: the file's content: JPEG, PNG or WebP; None where the table has only the file's path.
        where: the image, for the message.
        picture: what it is made.

    Raises:
        InputError: the file is damaged or of another format, or the image is transparent or too deep.
    """
    if data is None:
        raise InputError(f"{where} has no bytes, at most a path: put the files' contents into the table")
    try:
        with Image.open(io.BytesIO(data), formats=FORMATS) as image:
            target = None if image.has_transparency_data else _TARGET.get(image.mode)
            mode = image.mode
            values = _channels_first(picture.of_image(image.convert(target))) if target else None
    except Exception as error:
        # Of any class: a decoder raises what it trips over, OSError, SyntaxError, struct.error and more.
        reason = str(error).partition("\n")[0].partition(" <_io")[0] or type(error).__name__
        raise InputError(
            f"{where} cannot be decoded ({reason}): give a whole JPEG, PNG or WebP file, or drop the row"
        ) from error
    if values is None:
        raise InputError(f"{where} is transparent or deeper than 8 bits (mode {mode}): convert it to grey (L) or RGB")
    return values


def png(image: Pixels) -> bytes:
    """Return an image [1 or 3, height, width] as PNG, which loses nothing."""
    file = io.BytesIO()
    Image.fromarray(image[0] if len(image) == 1 else image.transpose(1, 2, 0)).save(file, "PNG", compress_level=1)
    return file.getvalue()


def _channels_first(image: Image.Image) -> Pixels:
    values = np.asarray(image)
    return values[np.newaxis] if values.ndim == 2 else values.transpose(2, 0, 1)
