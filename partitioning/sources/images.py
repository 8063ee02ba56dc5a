"""Folders of images by class."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import pyarrow as pa

from partitioning.common.bounds import check_bound
from partitioning.common.errors import InputError
from partitioning.common.paths import read_bytes
from partitioning.sources.source import BATCH_BYTES, Source, StreamedSource, reading

_FORM = "a folder of images"
_CLUTTER = ("Thumbs.db", "desktop.ini")  # files of file managers, beside hidden ones
_SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".bmp")
_FILES = 1024  # largest number of images in a batch
_SCHEMA = pa.schema([("image", pa.struct([("bytes", pa.binary()), ("path", pa.string())])), ("label", pa.string())])


def open_images(path: Path) -> Source:
    """Open a folder of images: each subfolder is a class and holds encoded images.

    Classes, and the images of each class, are ordered by name. Image files are read only for the column `image`,
    and their bytes are passed on unchanged.

    Raises:
        InputError: a folder is empty or holds anything else.
    """
    with reading(path, _FORM):
        images = [image for folder in _entries(path) for image in _list_class(folder)]

    def read(names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        schema = pa.schema([_SCHEMA.field(name) for name in names])
        with reading(path, _FORM):
            for group in _groups(images):
                columns = {"image": _contents(group, path) if "image" in names else None, "label": _labels(group)}
                yield pa.RecordBatch.from_arrays([columns[name] for name in names], schema=schema)

    return StreamedSource(path.absolute().name, _SCHEMA, read)


def _contents(images: Sequence[Path], folder: Path) -> pa.Array:
    contents = pa.array([read_bytes(image) for image in images], pa.binary())
    paths = pa.array([image.relative_to(folder).as_posix() for image in images], pa.string())
    return pa.StructArray.from_arrays([contents, paths], fields=list(_SCHEMA.field("image").type))


def _labels(images: Sequence[Path]) -> pa.Array:
    return pa.array([image.parent.name for image in images], pa.string())


def _list_class(folder: Path) -> Iterator[tuple[Path, int]]:
    # Images of a class and their sizes in bytes.
    if not folder.is_dir():
        raise InputError(
            f"{folder} is in no class: put each image into a folder named after its class; name tables one by one"
        )
    for path in _entries(folder):
        if path.suffix.lower() not in _SUFFIXES or not path.is_file():
            raise InputError(f"{path} is no image: keep only files that end in {', '.join(_SUFFIXES)}")
        size = path.stat().st_size
        if not size:
            raise InputError(f"{path} is empty: restore the image or delete it")
        check_bound(str(path), "bytes", size, "MAX_ROW_BYTES", "make the image smaller, or remove it")
        yield path, size


def _entries(folder: Path) -> list[Path]:
    visible = (path for path in folder.iterdir() if not path.name.startswith(".") and path.name not in _CLUTTER)
    entries = sorted(visible, key=lambda path: path.name)
    if not entries:
        raise InputError(f"{folder} is empty: give a folder with a subfolder of images for each class")
    for path in entries:
        if not path.name.isprintable():  # includes names that are not UTF-8, which Arrow cannot hold
            raise InputError(f"{str(path)!r} has a name that is not printable text: rename it")
    return entries


def _groups(images: Iterable[tuple[Path, int]]) -> Iterator[list[Path]]:
    group: list[Path] = []
    held = 0
    for path, size in images:
        if group and (held + size > BATCH_BYTES or len(group) == _FILES):
            yield group
            group, held = [], 0
        group.append(path)
        held += size
    yield group
