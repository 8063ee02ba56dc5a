"""Folders of images: a subfolder a class, and a folder a domain above it; or images and, for labels, their masks."""

import io
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa
from PIL import Image

from raysim.common.errors import InputError
from raysim.data.cache import cache
from raysim.data.images import FORMATS

Tables: TypeAlias = tuple[pa.Table, pa.Table | None]

SUFFIXES = (".png", ".jpg", ".jpeg", ".webp")

ENCODED = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
"""The type of a column of encoded images, as public hubs store them."""

MAPPED = 2**30
"""Bytes from which on a table is not held in memory, but in a mapped file without a name."""

SPLITS = ("train", "test")

_BATCH = 64 * 2**20
_CLUTTER = ("Thumbs.db", "desktop.ini")


@dataclass(frozen=True)
class Picture:
    """An image's file, and the values of the other columns in its row."""

    path: Path
    values: tuple[Any, ...]


def read_folder(path: Path) -> Tables:
    """Read images by class, or images and their masks.

    The folder has a subfolder a class, or a folder a domain with such subfolders, or `images` and `masks`, or `train`
    and `test`, each of which is one of the three. Classes are named by their folders; the images of each come in the
    order of their names. Each image NAME or DOMAIN/NAME in `images` has in `masks` one PNG of that name.

    Args:
        path: the folder.

    Returns:
        `image` (struct<bytes, path>), `label` (string, or as `image`) and, where there are domains, `domain` (string).

    Raises:
        InputError: it is no folder, has no image, or holds anything else; a file is no image; its name is given.
    """
    if not path.is_dir():
        raise InputError(f"{path} is {'a file' if path.exists() else 'missing'}: give the path of a folder of images")
    parts = {folder.name: folder for folder in _folders(path)}
    splits = [name for name in SPLITS if name in parts and any(entry.is_dir() for entry in _entries(parts[name]))]
    if not splits:
        return _part(path), None
    if "train" not in splits or len(parts) > len(splits):
        raise InputError(
            f"{path} has the folders {', '.join(parts)}: must be train alone, or train and test; rename or move the "
            "others"
        )
    train, *tests = (_part(path / name) for name in splits)
    if tests and tests[0].schema != train.schema:
        raise InputError(f"{path} has domains in only one of train and test: give both folders of domains, or neither")
    return train, *(tests or [None])


def _part(folder: Path) -> pa.Table:
    pairs = {entry.name for entry in _folders(folder)} == {"images", "masks"}
    return with_masks(folder) if pairs else by_class(folder)


def with_masks(folder: Path) -> pa.Table:
    """Read a folder of `images` and `masks`, as `read_folder` does one part."""
    domains = [entry for entry in _entries(folder / "images") if entry.is_dir()]
    images = [image for domain in domains for image in _images(domain)] or _images(folder / "images")
    if domains and len(domains) < len(_entries(folder / "images")):
        raise InputError(f"{folder / 'images'} mixes images and folders: give every domain a folder, or none")
    masks = [folder / "masks" / image.relative_to(folder / "images").with_suffix(".png") for image in images]
    lacking = next((mask for mask in masks if not mask.is_file()), None)
    if lacking is not None:
        raise InputError(f"{lacking} is missing: give each image a mask, a PNG of its name whose values are classes")
    kinds = {"domain": pa.string()} if domains else {}
    pictures = [Picture(image, (image.parent.name,) if domains else ()) for image in images]
    return beside_masks(image_table(folder, pictures, kinds), "label", folder, masks)


def beside_masks(
    table: pa.Table,
    column: str,
    root: Path,
    masks: Sequence[Path],
    read: Callable[[Path], bytes] | None = None,
    metadata: Mapping[bytes, bytes] | None = None,
) -> pa.Table:
    """A table of images with their masks as its second column.

    Args:
        table: `image` and other columns.
        column: the masks' name.
        root: the folder that the paths in the table start from.
        masks: a file a row.
        read: gives a file's content; default as it is.
        metadata: of the column.
    """
    own = image_table(root, [Picture(mask, ()) for mask in masks], {}, read)
    return table.add_column(1, pa.field(column, ENCODED, metadata=metadata), own["image"])


def by_class(folder: Path) -> pa.Table:
    """Read a folder of classes, or of domains with classes, as `read_folder` does one part."""
    pictures, depths = [], set()
    for upper in _folders(folder):
        deeper = any(entry.is_dir() for entry in _entries(upper))
        depths.add(deeper)
        if not deeper:
            pictures += [Picture(image, (upper.name,)) for image in _images(upper)]
            continue
        for lower in _folders(upper):
            pictures += [Picture(image, (lower.name, upper.name)) for image in _images(lower)]
    if len(depths) > 1:
        raise InputError(f"{folder} mixes images and folders of images: give every class, or every domain, a folder")
    if not pictures:
        raise InputError(f"{folder} has no images: give a folder with a subfolder of {', '.join(SUFFIXES)} for a class")
    kinds = {"label": pa.string(), "domain": pa.string()} if depths == {True} else {"label": pa.string()}
    return image_table(folder, pictures, kinds)


def image_table(
    root: Path,
    pictures: Sequence[Picture],
    kinds: Mapping[str, pa.DataType],
    read: Callable[[Path], bytes] | None = None,
) -> pa.Table:
    """Read images into a table; a large one lies in a mapped file, which takes disk in raysim's cache.

    Args:
        root: the folder that the paths in the table start from.
        pictures: the files, and a value for each of the other columns.
        kinds: these columns' types.
        read: gives a file's content; default as it is.

    Raises:
        InputError: a file is no image, or cannot be read; its name is given.
    """
    schema = pa.schema([("image", ENCODED), *kinds.items()])
    whole = sum(picture.path.stat().st_size for picture in pictures)
    batches = (_batch(root, group, schema, read or checked_image) for group in _groups(pictures))
    return pa.Table.from_batches(batches, schema) if whole < MAPPED else _mapped(batches, schema)


def images_in(folder: Path) -> list[Path]:
    """The images of a folder in the order of their names; what is no image is passed over."""
    return sorted(path for path in _inside(folder) if path.suffix.lower() in SUFFIXES)


def checked_image(path: Path) -> bytes:
    """Return an image file's content; InputError where it does not begin as one."""
    try:
        data = path.read_bytes()
        with Image.open(io.BytesIO(data), formats=FORMATS):
            return data
    except Exception as error:
        # Of any class: a decoder raises what it trips over.
        reason = str(error).partition("\n")[0].partition(" <_io")[0] or type(error).__name__
        raise InputError(f"{path} is no whole image ({reason}): give a JPEG, PNG or WebP file, or remove it") from error


def _batch(root: Path, pictures: Sequence[Picture], schema: pa.Schema, read: Callable[[Path], bytes]) -> pa.RecordBatch:
    paths = [picture.path.relative_to(root).as_posix() for picture in pictures]
    contents = pa.array([read(picture.path) for picture in pictures], pa.binary())
    images = pa.StructArray.from_arrays([contents, pa.array(paths, pa.string())], fields=list(ENCODED))
    others = zip(*(picture.values for picture in pictures), strict=True)
    columns = [pa.array(values, kind) for values, kind in zip(others, schema.types[1:], strict=True)]
    return pa.RecordBatch.from_arrays([images, *columns], schema=schema)


def _groups(pictures: Sequence[Picture]) -> Iterator[list[Picture]]:
    group: list[Picture] = []
    held = 0
    for picture in pictures:
        size = picture.path.stat().st_size
        if group and held + size > _BATCH:
            yield group
            group, held = [], 0
        group.append(picture)
        held += size
    if group:
        yield group


def _mapped(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> pa.Table:
    folder = cache()
    folder.mkdir(parents=True, exist_ok=True)
    # The file loses its name at once: it is gone when the table is.
    with tempfile.NamedTemporaryFile(prefix="images-", suffix=".arrow", dir=folder) as file:
        with pa.ipc.new_file(file, schema) as writer:
            for batch in batches:
                writer.write_batch(batch)
        file.flush()
        return pa.ipc.open_file(pa.memory_map(file.name)).read_all()


def _images(folder: Path) -> list[Path]:
    images = _entries(folder)
    for path in images:
        if path.suffix.lower() not in SUFFIXES or not path.is_file():
            raise InputError(f"{path} is no image: keep only files that end in {', '.join(SUFFIXES)}")
    return images


def _folders(folder: Path) -> list[Path]:
    entries = _entries(folder)
    for path in entries:
        if not path.is_dir():
            raise InputError(f"{path} is in no class: put each image into a folder named after its class")
    return entries


def _entries(folder: Path) -> list[Path]:
    entries = sorted(path for path in _inside(folder) if path.name[0] != "." and path.name not in _CLUTTER)
    if not entries:
        raise InputError(f"{folder} has no images: give a folder with a subfolder of images for each class")
    for path in entries:
        if not path.name.isprintable():  # also what is no UTF-8, which Arrow cannot hold
            raise InputError(f"{str(path)!r} has a name that is not printable text: rename it")
    return entries


def _inside(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError as error:
        reason = error.strerror or str(error)
        raise InputError(
            f"{folder} is no folder that can be read ({reason}): must be one of images; correct it"
        ) from error
