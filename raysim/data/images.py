"""Images as arrays of pixels, decoded, converted and resized."""

import io
import warnings
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from PIL import Image
from PIL.ImageFile import ImageFile

from partitioning.common.bounds import MAX_PIXELS
from raysim.common.errors import InputError

FORMATS = ("JPEG", "PNG", "WEBP")
"""Formats that raysim decodes. Pillow reads more, and runs other programs for some of them."""

CONVERSIONS = {"1": "L", "L": "L", "P": "RGB", "RGB": "RGB", "CMYK": "RGB", "YCbCr": "RGB"}
"""Pillow's modes that raysim reads, and their conversion: grey or colour of 8 bits."""

Pixels = npt.NDArray[np.uint8]

LUMA = np.array([299, 587, 114]) / 1000
"""Weights of red, green and blue in the grey of a colour (ITU-R 601), as in Pillow."""


def is_image(shape: tuple[int, ...]) -> bool:
    """Say whether a sample of this shape is a grey or colour image, channels first."""
    return len(shape) == 3 and shape[0] in (1, 3)


@dataclass(frozen=True)
class ImageFormat:
    """Format that all images get: grey or colour first, then one size by Pillow's bilinear filter.

    Args:
        size: height and width in pixels; None to keep each image's own.
        channels: 3 repeats a grey channel, 1 takes the luma of a colour; None to keep each image's own.
    """

    size: tuple[int, int] | None = None
    channels: int | None = None

    def __bool__(self) -> bool:
        return self.size is not None or self.channels is not None

    def __str__(self) -> str:
        size = "" if self.size is None else f"-{self.size[0]}x{self.size[1]}"
        return size + ("" if self.channels is None else f"-c{self.channels}")

    def shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape of converted images [channels, height, width]."""
        return (self.channels or shape[0], *(self.size or shape[1:]))

    def of_image(self, image: Image.Image) -> Image.Image:
        """Convert Pillow's grey or RGB image."""
        if self.channels is not None:
            image = image.convert("L" if self.channels == 1 else "RGB")
        return image if self.size is None else image.resize(self.size[::-1], Image.Resampling.BILINEAR)

    def of_arrays(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Convert arrays [n, 1 or 3, height, width]: uint8 like images, floats by the same formulas, unrounded."""
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


def with_places(column: pa.Array, prefix: str, first: int = 0) -> Iterator[tuple[bytes | None, str]]:
    """Yield the bytes of each encoded image, and its place for an error message: prefix, row and path.

    Args:
        column: struct<bytes: binary, path: string>, or plain binary.
        prefix: beginning of the place, such as "column 'image' of client 3, row".
        first: number of the first row.
    """
    paths: list[str | None] = [None] * len(column)
    if pa.types.is_struct(column.type) and column.type.get_field_index("path") >= 0:
        paths = pc.struct_field(column, "path").to_pylist()
    for row, (data, path) in enumerate(zip(encoded(column), paths, strict=True), start=first):
        yield data.as_py(), f"{prefix} {row}{f' ({path})' if path else ''},"


@contextmanager
def opened(data: bytes, formats: Collection[str] = FORMATS) -> Iterator[ImageFile]:
    """Open an encoded image, which is decoded only later.

    Args:
        data: content of the file.
        formats: Pillow's names of the allowed formats.

    Raises:
        ValueError: the image has more than `MAX_PIXELS`.
        Exception: anything that a decoder raises on a damaged file.
    """
    with warnings.catch_warnings():
        # Pillow warns of notes in a file that are damaged, and of pixels beyond a bound of its own, which is larger.
        warnings.simplefilter("ignore")
        try:
            image = Image.open(io.BytesIO(data), formats=tuple(formats))
        except Image.DecompressionBombError:
            raise ValueError(f"it has more than MAX_PIXELS = {MAX_PIXELS:,} pixels") from None
    with image:
        if image.width * image.height > MAX_PIXELS:
            raise ValueError(f"it has {image.width} x {image.height} pixels, more than MAX_PIXELS = {MAX_PIXELS:,}")
        yield image


def pixels(data: bytes | None, where: str, picture: ImageFormat = ImageFormat()) -> Pixels:
    """Return one image's pixels: uint8 [1, height, width] for grey, [3, height, width] for colour.

    Args:
        data: content of a JPEG, PNG or WebP file; None if the table has only the file's path.
        where: place of the image, for the error message.
        picture: format of the result.

    Raises:
        InputError: the file is damaged or of another format, or the image is transparent or too deep.
    """
    if data is None:
        raise InputError(f"{where} has no bytes, at most a path: put the files' contents into the table")
    try:
        with opened(data) as image:
            target = None if image.has_transparency_data else CONVERSIONS.get(image.mode)
            mode = image.mode
            values = _channels_first(picture.of_image(image.convert(target))) if target else None
    except Exception as error:  # a decoder may raise anything: OSError, SyntaxError, struct.error and more
        raise InputError(
            f"{where} cannot be decoded ({fault(error)}): give a whole JPEG, PNG or WebP file, or drop the row"
        ) from error
    if values is None:
        raise InputError(f"{where} is transparent or deeper than 8 bits (mode {mode}): convert it to grey (L) or RGB")
    return values


def fault(error: Exception) -> str:
    """Return a decoder's error in a few words, without the address of its buffer."""
    return str(error).partition("\n")[0].partition(" <_io")[0] or type(error).__name__


def png(image: Pixels) -> bytes:
    """Return an image [1 or 3, height, width] as PNG, without loss."""
    file = io.BytesIO()
    Image.fromarray(image[0] if len(image) == 1 else image.transpose(1, 2, 0)).save(file, "PNG", compress_level=1)
    return file.getvalue()


def _channels_first(image: Image.Image) -> Pixels:
    values = np.asarray(image)
    return values[np.newaxis] if values.ndim == 2 else values.transpose(2, 0, 1)
