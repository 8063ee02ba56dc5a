"""Folders of images by class."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from partitioning.common.errors import InputError
from partitioning.sources.source import BATCH_BYTES, reading

_SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".bmp")
_FILES = 1024  # of a batch at most

_SCHEMA = pa.schema([("image", pa.struct([("bytes", pa.binary()), ("path", pa.string())])), ("label", pa.string())])


@dataclass(frozen=True)
class _Image:
    path: Path
    label: str
    bytes: int


class ImageFolder:
    """A folder whose subfolders are classes and hold encoded images, which are passed on as they are.

    Classes, and the images of each, come in the order of their names.
    """

    schema = _SCHEMA

    def __init__(self, path: Path) -> None:
        """List the images; raises InputError where a folder is empty or holds anything else."""
        self._path = path
        self.name = path.absolute().name
        with reading(path, "a folder of images"):
            self._images = [image for folder in _entries(path) for image in _class(folder)]

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """Give all images in order; their files are read only for the column `image`."""
        read = {"image": self._contents, "label": _labels}
        names = self.schema.names if columns is None else list(columns)
        schema = pa.schema([self.schema.field(name) for name in names])
        with reading(self._path, "a folder of images"):
            for group in _groups(self._images):
                yield pa.RecordBatch.from_arrays([read[name](group) for name in names], schema=schema)

    def _contents(self, images: Sequence[_Image]) -> pa.Array:
        contents = pa.array([image.path.read_bytes() for image in images], pa.binary())
        paths = pa.array([image.path.relative_to(self._path).as_posix() for image in images], pa.string())
        return pa.StructArray.from_arrays([contents, paths], fields=list(self.schema.field("image").type))


def _labels(images: Sequence[_Image]) -> pa.Array:
    return pa.array([image.label for image in images], pa.string())


def _class(folder: Path) -> Iterator[_Image]:
    if not folder.is_dir():
        raise InputError(f"{folder} is in no class: put each image into a folder named after its class")
    for path in _entries(folder):
        if path.suffix.lower() not in _SUFFIXES or not path.is_file():
            raise InputError(f"{path} is no image: keep only files that end in {', '.join(_SUFFIXES)}")
        size = path.stat().st_size
        if not size:
            raise InputError(f"{path} is empty: restore the image or delete it")
        yield _Image(path, folder.name, size)


def _entries(folder: Path) -> list[Path]:
    entries = sorted(folder.iterdir(), key=lambda path: path.name)
    if not entries:
        raise InputError(f"{folder} is empty: give a folder with a subfolder of images for each class")
    for path in entries:
        if not path.name.isprintable():  # also what is no UTF-8, which Arrow cannot hold
            raise InputError(f"{str(path)!r} has a name that is not printable text: rename it")
    return entries


def _groups(images: Iterable[_Image]) -> Iterator[list[_Image]]:
    group: list[_Image] = []
    held = 0
    for image in images:
        if group and (held + image.bytes > BATCH_BYTES or len(group) == _FILES):
            yield group
            group, held = [], 0
        group.append(image)
        held += image.bytes
    yield group
