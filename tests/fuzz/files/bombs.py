"""Bombs: small files that name, or unpack to, far more than any memory holds."""

from __future__ import annotations

import atexit
import bz2
import gzip
import io
import os
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image, PngImagePlugin

from tests.fuzz.files.forms import FORMS, Rng, picture, pictures

GIGA = 10**9

Bomb = Callable[[Path, Rng], Path]
"""Writes a file or a folder, and returns its path."""


def png(width: int, height: int, content: bytes = b"", depth: int = 8, color: int = 0, extra: bytes = b"") -> bytes:
    """Return a PNG of this size; without content it lies about its size."""
    head = struct.pack(">2I5B", width, height, depth, color, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        [_chunk(b"IHDR", head), extra, _chunk(b"IDAT", content or zlib.compress(b"")), _chunk(b"IEND", b"")]
    )


def _chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


@cache
def zeros(count: int) -> bytes:
    """Return so many zeros, deflated."""
    packer = zlib.compressobj(9)
    parts = [packer.compress(bytes(10**7)) for _ in range(count // 10**7)]
    return b"".join([*parts, packer.flush()])


@cache
def _black(side: int) -> bytes:
    return png(side, side, zeros(side * (side + 1) // 10**7 * 10**7 + 10**7))


def _pixels() -> Iterator[bytes]:
    """Yield pictures that decode to far more than their bytes, or that say so."""
    yield _black(10_000)
    yield _black(20_000)
    for width, height in ((2**31 - 1, 1), (2**16, 2**16), (10**5, 10**3), (0, 0), (1, 10**8), (2**31 - 1, 2**31 - 1)):
        yield png(width, height)
    yield png(9000, 9000, depth=16, color=6)
    jpeg = bytearray(picture(form="JPEG"))
    place = jpeg.find(b"\xff\xc0") + 5
    jpeg[place : place + 4] = struct.pack(">2H", 65500, 65500)
    yield bytes(jpeg)
    webp = bytearray(picture(form="WEBP", mode="RGB"))
    webp[26:30] = struct.pack("<2H", 0x3FFF, 0x3FFF)
    yield bytes(webp)
    text = _chunk(b"zTXt", b"Comment\0\0" + zeros(10**8)) * 3
    yield png(8, 8, zlib.compress(bytes(8 * 9)), extra=text)
    profile = _chunk(b"iCCP", b"icc\0\0" + zeros(10**8))
    yield png(8, 8, zlib.compress(bytes(8 * 9)), extra=profile)
    yield _frames("PNG")
    yield _frames("WEBP")
    exif = io.BytesIO()
    Image.new("L", (8, 8)).save(exif, "JPEG", exif=b"Exif\0\0MM\0*" + b"\xff" * 60_000)
    yield exif.getvalue()
    info = PngImagePlugin.PngInfo()
    for number in range(2000):
        info.add_text(f"key{number}", "v" * 900, zip=True)
    noted = io.BytesIO()
    Image.new("L", (8, 8)).save(noted, "PNG", pnginfo=info)
    yield noted.getvalue()


def _frames(form: str) -> bytes:
    with io.BytesIO() as file:
        first, *others = [Image.new("RGB", (1500, 1500), (shade, 0, 0)) for shade in range(30)]
        first.save(file, form, save_all=True, append_images=others)
        return file.getvalue()


@cache
def all_pixels() -> tuple[bytes, ...]:
    """Return the pictures of `_pixels`."""
    return tuple(_pixels())


def _drawn_picture(rng: Rng) -> bytes:
    every = all_pixels()
    return every[int(rng.integers(len(every)))]


def column(folder: Path, rng: Rng) -> Path:
    pq.write_table(pictures(_drawn_picture(rng), masks=rng.random() < 0.3), folder / "data.parquet")
    return folder / "data.parquet"


def many_pictures(folder: Path, rng: Rng) -> Path:
    """Write pictures that fit the bound of pixels each, and no memory together."""
    each = _black(6000)
    table = pa.table({"image": pa.array([each] * 3000), "label": np.arange(3000) % 4})
    pq.write_table(table, folder / "data.parquet", compression="zstd")
    return folder / "data.parquet"


def in_folder(folder: Path, rng: Rng) -> Path:
    path = FORMS["folder"].write(folder)
    suffix = str(rng.choice(["png", "jpg", "webp"]))
    (path / "cat" / f"zz.{suffix}").write_bytes(_drawn_picture(rng))
    return path


def in_masks(folder: Path, rng: Rng) -> Path:
    path = FORMS["folder of masks"].write(folder)
    (path / str(rng.choice(["images", "masks"])) / "0.png").write_bytes(_drawn_picture(rng))
    return path


def many_entries(folder: Path, rng: Rng) -> Path:
    """Write a folder of many links to one picture, or of many classes."""
    path = FORMS["folder"].write(folder)
    for entry in range(20_000):
        if entry % 2:
            os.link(path / "cat" / "0.png", path / "cat" / f"link{entry}.png")
        elif entry % 20 == 0:
            (path / f"class{entry}").mkdir()
            os.link(path / "cat" / "0.png", path / f"class{entry}" / "a.png")
    return path


def rows(folder: Path, rng: Rng) -> Path:
    """Write a Parquet file of billions of rows in a few megabytes."""
    count, columns = int(rng.choice([4, 12])) * GIGA, int(rng.choice([2, 8]))
    return _copied(_rows_file(count, columns, "parquet"), folder, "data.parquet")


@cache
def _rows_file(count: int, columns: int, form: str) -> Path:
    path = _shelf() / f"{count}-{columns}.{form}"
    part = 10**7
    values = pa.DictionaryArray.from_arrays(pa.array(np.zeros(part, np.int8)), pa.array([1.0]))
    table = pa.table({**{f"x{place}": values for place in range(columns - 1)}, "label": values.cast(pa.int64())})
    if form == "parquet":
        with pq.ParquetWriter(path, table.schema, compression="zstd") as writer:
            writer.write_table(table, row_group_size=part)
        _repeat_groups(path, count // part)
    return path


def _repeat_groups(path: Path, times: int) -> None:
    """Let the footer name the first row group again and again; a reader cannot know."""
    metadata = pq.read_metadata(path)
    again = pq.read_metadata(path)
    for _ in range(times - 1):
        metadata.append_row_groups(again)
    content = path.read_bytes()
    length = struct.unpack("<I", content[-8:-4])[0]
    with io.BytesIO() as footer:
        metadata.write_metadata_file(footer)
        whole = footer.getvalue()
    path.write_bytes(content[: -8 - length] + whole[4:])


def long_values(folder: Path, rng: Rng) -> Path:
    """Write a Parquet file with two values of more than 256 MiB, packed."""
    path = _shelf() / "values.parquet"
    if not path.exists():
        text = pa.array(["a" * (2**28 + 2**20)] * 2, pa.large_string())
        pq.write_table(pa.table({"x": text, "label": [0, 1]}), path, compression="zstd", use_dictionary=False)
    return _copied(path, folder, "data.parquet")


def repeated_values(folder: Path, rng: Rng) -> Path:
    """Write a Parquet file in which one text of a megabyte, or an image's bytes, stand a million times."""
    text, count, struct_of = "a" * int(rng.choice([10**5, 10**6])), 10**6, rng.random() < 0.5
    values = pa.DictionaryArray.from_arrays(pa.array(np.zeros(count, np.int32)), pa.array([text]))
    column = pa.StructArray.from_arrays([values], ["bytes"]) if struct_of else values
    labels = pa.array(np.arange(count) % 2)
    pq.write_table(pa.table({"x": column, "label": labels}), folder / "data.parquet", store_schema=False)
    return folder / "data.parquet"


def packed_arrow(folder: Path, rng: Rng) -> Path:
    """Write an Arrow file whose one compressed batch has two gigabytes."""
    path = _shelf() / "packed.feather"
    if not path.exists():
        column = pa.array(np.zeros(2 * 10**8, np.int64))
        options = pa.ipc.IpcWriteOptions(compression="zstd")
        with pa.ipc.new_file(path, pa.schema([("label", pa.int64())]), options=options) as writer:
            writer.write_batch(pa.record_batch([column], ["label"]))
    return _copied(path, folder, "data.feather")


def one_line(folder: Path, rng: Rng) -> Path:
    """Write delimited text of one endless line: of zeros, which take no room, or of commas."""
    name = str(rng.choice(["data.csv", "data.tsv"]))
    path = folder / name
    path.write_bytes(b"x,label\n" if rng.random() < 0.5 else b"," * 10**7)
    os.truncate(path, 2**31)
    return path


def many_lines(folder: Path, rng: Rng) -> Path:
    """Write delimited text with many columns, or with many quotes that do not end."""
    path = folder / "data.csv"
    bodies = (
        "a," * 500_000 + "label\n" + "1," * 500_000 + "0\n",
        '"' * 10**6 + "\n" * 10**6,
        "label\n" + "0\n" * 10**6,
    )
    path.write_text(bodies[int(rng.integers(len(bodies)))])
    return path


def archive(folder: Path, rng: Rng) -> Path:
    """Write an archive whose arrays claim, or unpack to, more than any memory."""
    path = folder / "data.npz"
    shapes = ((10**12,), (2**62, 4), (3, 10**11), (10**9, 8), (-1,), (0, 5), (2, 10**9), (1,) * 40)
    shape = shapes[int(rng.integers(len(shapes)))]
    kind = str(rng.choice(["<f8", "|u1", ">i4", "<U1000000", "|S500000000", "|O", "<M8[ns]", "[('a', '<f4')]"]))
    kind = kind if kind.startswith("[") else repr(kind)
    order = str(bool(rng.integers(2)))
    header = f"{{'descr': {kind}, 'fortran_order': {order}, 'shape': {shape}, }}".ljust(500).encode() + b"\n"
    head = b"\x93NUMPY\x01\0" + struct.pack("<H", len(header)) + header
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name in ("x", "label")[: int(rng.integers(1, 3))]:
            with file.open(f"{name}.npy", "w") as member:
                member.write(head)
                for _ in range(int(rng.choice([0, 1, 40]))):
                    member.write(bytes(10**7))
    return path


def packed_idx(folder: Path, rng: Rng) -> Path:
    """Write MNIST's images as gigabytes of zeros, with a header that is right or lies."""
    place = FORMS["mnist"].write(folder)
    count = int(rng.choice([60, 10**7, 2**32 - 1]))
    head = struct.pack(">4B3I", 0, 0, 8, 3, count, 28, 28)
    # A gzip file may have several members, one behind the other.
    (place / "train-images-idx3-ubyte.gz").write_bytes(gzip.compress(head) + gzip.compress(bytes(10**7)) * 400)
    return place


def packed_text(folder: Path, rng: Rng) -> Path:
    """Write USPS's lines as gigabytes of zeros or of spaces."""
    path = FORMS["usps"].write(folder)
    path.write_bytes(bz2.compress([b"\0", b" ", b"1 ", b"\n"][int(rng.integers(4))] * 10**7) * 300)
    return path


def packed_matrix(folder: Path, rng: Rng) -> Path:
    """Write SVHN's matrix with an element that unpacks to gigabytes."""
    path = FORMS["svhn"].write(folder)
    shape = [(9999, 9999, 9999, 9999), (32, 32, 3, 500_000), (32, 32, 3, 30)][int(rng.integers(3))]
    path.write_bytes(path.read_bytes()[:128] + _matrix(shape))
    return path


@cache
def _matrix(shape: tuple[int, ...]) -> bytes:
    inner = struct.pack("<6I", 14, 0xFFFFFFF0, 6, 8, 9, 0) + struct.pack("<2I4i", 5, 16, *shape)
    inner += struct.pack("<4I", 0x00010001, 0x58, 2, 0xFFFFFFF0)
    packer = zlib.compressobj(1)
    body = packer.compress(inner) + b"".join(packer.compress(bytes(10**7)) for _ in range(200)) + packer.flush()
    return struct.pack("<2I", 15, len(body)) + body


def packed_table(folder: Path, rng: Rng) -> Path:
    """Write Covertype's rows as gigabytes, packed."""
    path = FORMS["covertype"].write(folder)
    line = [(",".join(["3"] * 54 + ["1"]) + "\n").encode(), b"\0", b",", b'"'][int(rng.integers(4))]
    path.write_bytes(gzip.compress(line * (10**7 // len(line))) * 600)
    return path


def hole(name: str, folder: Path, rng: Rng) -> Path:
    """Write a text with a hole of gigabytes at its end."""
    path = FORMS[name].write(folder)
    file = sorted(path.iterdir())[int(rng.integers(2))] if path.is_dir() else path
    os.truncate(file, int(rng.choice([3, 200])) * GIGA)
    return path


@cache
def _shelf() -> Path:
    """Return a folder for files that are made only once."""
    folder = Path(mkdtemp(prefix="shelf-"))
    atexit.register(rmtree, folder)
    return folder


def _copied(path: Path, folder: Path, name: str) -> Path:
    # Not a link: another bomb may not be drawn on top of the shelf's own file.
    (folder / name).write_bytes(path.read_bytes())
    return folder / name


BOMBS: Mapping[str, tuple[str, Bomb]] = {
    "pixels in a column": ("pictures", column),
    "pictures beyond memory": ("pictures", many_pictures),
    "pixels in a folder": ("folder", in_folder),
    "pixels beside masks": ("folder of masks", in_masks),
    "many entries": ("folder", many_entries),
    "billions of rows": ("parquet", rows),
    "values beyond the bound": ("parquet", long_values),
    "a value a million times": ("parquet", repeated_values),
    "a packed batch": ("feather", packed_arrow),
    "one line": ("csv", one_line),
    "many lines": ("csv", many_lines),
    "an archive": ("npz", archive),
    "packed digits": ("mnist", packed_idx),
    "packed lines": ("usps", packed_text),
    "a packed matrix": ("svhn", packed_matrix),
    "packed rows": ("covertype", packed_table),
    **{f"a hole in {name}": (name, partial(hole, name)) for name in ("shakespeare", "eicu", "abide")},
}
"""Kinds of bombs: the form that each pretends to be, and its writer."""
