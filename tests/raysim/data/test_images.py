"""Encoded images as pixels."""

import io
import struct
import zlib
from collections.abc import Callable

import numpy as np
import pytest
from PIL import Image

from partitioning import InputError
from raysim.data.images import pixels
from raysim.data.targets import mask_of

RNG = np.random.default_rng(0)
GREY = RNG.integers(0, 256, (5, 7), dtype=np.uint8)
COLOUR = RNG.integers(0, 256, (5, 7, 3), dtype=np.uint8)


def _file(image: Image.Image, kind: str = "PNG", **options: object) -> bytes:
    sink = io.BytesIO()
    image.save(sink, kind, **options)
    return sink.getvalue()


@pytest.mark.parametrize(("kind", "options"), [("PNG", {}), ("WEBP", {"lossless": True})])
def test_colour_is_kept_without_loss(kind: str, options: dict[str, object]) -> None:
    decoded = pixels(_file(Image.fromarray(COLOUR), kind, **options), "image")
    assert np.array_equal(decoded, COLOUR.transpose(2, 0, 1))


def test_grey_has_one_channel() -> None:
    assert np.array_equal(pixels(_file(Image.fromarray(GREY)), "image"), GREY[np.newaxis])
    assert pixels(_file(Image.fromarray(GREY), "JPEG"), "image").shape == (1, 5, 7)
    assert set(pixels(_file(Image.fromarray(GREY > 127)), "image").ravel().tolist()) == {0, 255}


def test_palette_and_print_colours_become_rgb() -> None:
    assert pixels(_file(Image.fromarray(COLOUR).convert("P")), "image").shape == (3, 5, 7)
    assert pixels(_file(Image.fromarray(COLOUR).convert("CMYK"), "JPEG"), "image").shape == (3, 5, 7)


PNG = _file(Image.fromarray(COLOUR))

REFUSED = {
    "empty": (b"", "cannot be decoded"),
    "text": (b"not an image", "cannot identify image file)"),
    "cut short": (PNG[:-30], "cannot be decoded"),
    "header alone": (PNG[:20], "cannot be decoded"),
    "a flipped byte": (PNG[:45] + bytes([PNG[45] ^ 255]) + PNG[46:], "cannot be decoded"),
    "another format": (_file(Image.fromarray(COLOUR), "GIF"), "cannot identify image file)"),
    "transparent": (_file(Image.fromarray(COLOUR).convert("RGBA")), "mode RGBA"),
    "transparent palette": (_file(Image.fromarray(GREY).convert("P"), transparency=0), "mode P"),
    "deep": (_file(Image.fromarray(GREY.astype(np.uint16))), "mode I;16"),
    "absent": (None, "has no bytes"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_image_that_cannot_be_decoded(case: str) -> None:
    data, message = REFUSED[case]
    with pytest.raises(InputError) as error:
        pixels(data, "column 'x' of client 3, row 4,")
    assert str(error.value).startswith("column 'x' of client 3, row 4, ")
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def _claiming(width: int, height: int) -> bytes:
    """Return a PNG of no pixels whose header claims a size."""
    chunks = (
        (b"IHDR", struct.pack(">2I5B", width, height, 8, 0, 0, 0, 0)),
        (b"IDAT", zlib.compress(b"")),
        (b"IEND", b""),
    )
    parts = [struct.pack(">I", len(c)) + name + c + struct.pack(">I", zlib.crc32(name + c)) for name, c in chunks]
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


@pytest.mark.parametrize("read", [pixels, mask_of])
@pytest.mark.parametrize(("width", "height"), [(8193, 8192), (10_000, 10_000), (2**16, 2**16), (2**31 - 1, 1)])
def test_pixels_are_bounded_before_they_are_decoded(
    read: Callable[[bytes, str], object], width: int, height: int
) -> None:
    with pytest.raises(InputError, match="more than MAX_PIXELS = 67,108,864"):
        read(_claiming(width, height), "image")


def test_a_picture_at_the_bound_reaches_the_decoder() -> None:
    with pytest.raises(InputError, match="cannot be decoded") as error:
        pixels(_claiming(8192, 8192), "image")
    assert "MAX_PIXELS" not in str(error.value)


def test_damaged_notes_beside_the_pixels_are_passed_over() -> None:
    """Pillow would warn of them, and warnings are errors here."""
    exif = b"Exif\0\0II*\0\x08\0\0\0\x05\0\x1a\x01\x05\0\x01\0\0\0\xff\xff\0\0"
    jpeg = _file(Image.new("L", (4, 3)), "JPEG", exif=exif)
    assert exif in jpeg and pixels(jpeg, "image").shape == (1, 3, 4)
