"""Folders of images: a subfolder per class, and a folder per domain above it; or images and masks for labels."""

import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa

from partitioning.common.bounds import check_bound
from partitioning.common.paths import cache, read_bytes, regular
from partitioning.sources.memory import Tables
from raysim.common.errors import InputError
from raysim.data.images import fault, opened

ImageRow: TypeAlias = tuple[Path, tuple[Any, ...]]
"""File of an image, and the values of the other columns in its row."""

SUFFIXES = (".png", ".jpg", ".jpeg", ".webp")

ENCODED = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
"""Type of a column of encoded images, as on public hubs."""

MAPPED = 2**30
"""Bytes from which a table lies in a memory-mapped file without a name instead of main memory."""

SPLITS = ("train", "test")

BATCH_BYTES = 64 * 2**20
CLUTTER = ("Thumbs.db", "desktop.ini")


def read_folder(path: Path) -> Tables:
    """Read images by class, or images and their masks.

    The folder has one of three layouts: a subfolder per class; a folder per domain, with such subfolders; or `images`
    and `masks`. Alternatively it has `train` and `test`, each with one of these layouts. Folders name the classes, and
    the images of a class are sorted by name. Each image NAME or DOMAIN/NAME in `images` has one PNG of that name in
    `masks`.

    Args:
        path: the folder.

    Returns:
        `image` (struct<bytes, path>), `label` (string, or like `image`) and, if there are domains, `domain` (string).

    Raises:
        InputError: the path is not a folder, or the folder has no image or another layout, or a file is not an image;
            the message names it.
    """
    if not path.is_dir():
        raise InputError(f"{path} is {'a file' if path.exists() else 'missing'}: give the path of a folder of images")
    parts = {folder.name: folder for folder in _folders(path)}
    splits = [name for name in SPLITS if name in parts and any(entry.is_dir() for entry in _entries(parts[name]))]
    if not splits:
        return _read_part(path), None
    if "train" not in splits or len(parts) > len(splits):
        raise InputError(
            f"{path} has the folders {', '.join(parts)}: must be train alone, or train and test; rename or move the "
            "others"
        )
    train, *tests = (_read_part(path / name) for name in splits)
    if tests and tests[0].schema != train.schema:
        raise InputError(f"{path} has domains in only one of train and test: give both folders of domains, or neither")
    return train, *(tests or [None])


def _read_part(folder: Path) -> pa.Table:
    pairs = {entry.name for entry in _folders(folder)} == {"images", "masks"}
    return with_masks(folder) if pairs else by_class(folder)


def with_masks(folder: Path) -> pa.Table:
    """Read a folder of `images` and `masks`, one part of `read_folder`."""
    domains = [entry for entry in _entries(folder / "images") if entry.is_dir()]
    images = [image for domain in domains for image in _images(domain)] or _images(folder / "images")
    if domains and len(domains) < len(_entries(folder / "images")):
        raise InputError(f"{folder / 'images'} mixes images and folders: give every domain a folder, or none")
    masks = [folder / "masks" / image.relative_to(folder / "images").with_suffix(".png") for image in images]
    lacking = next((mask for mask in masks if not mask.is_file()), None)
    if lacking is not None:
        raise InputError(f"{lacking} is missing: give each image a mask, a PNG of its name whose values are classes")
    kinds = {"domain": pa.string()} if domains else {}
    rows: list[ImageRow] = [(image, (image.parent.name,) if domains else ()) for image in images]
    return beside_masks(image_table(folder, rows, kinds), "label", folder, masks)


def beside_masks(
    table: pa.Table,
    column: str,
    root: Path,
    masks: Sequence[Path],
    read: Callable[[Path], bytes] | None = None,
    metadata: Mapping[bytes, bytes] | None = None,
) -> pa.Table:
    """Return a table of images with their masks as its second column.

    Args:
        table: `image` and other columns.
        column: name of the new column.
        root: folder to which the paths in the table are relative.
        masks: one file per row.
        read: function that returns a file's content; by default its bytes.
        metadata: metadata of the new column.
    """
    own = image_table(root, [(mask, ()) for mask in masks], {}, read)
    return table.add_column(1, pa.field(column, ENCODED, metadata=metadata), own["image"])


def by_class(folder: Path) -> pa.Table:
    """Read a folder of classes, or of domains with classes, one part of `read_folder`."""
    rows: list[ImageRow] = []
    depths = set()
    for upper in _folders(folder):
        deeper = any(entry.is_dir() for entry in _entries(upper))
        depths.add(deeper)
        if not deeper:
            rows += [(image, (upper.name,)) for image in _images(upper)]
            continue
        for lower in _folders(upper):
            rows += [(image, (lower.name, upper.name)) for image in _images(lower)]
    if len(depths) > 1:
        raise InputError(f"{folder} mixes images and folders of images: give every class, or every domain, a folder")
    if not rows:
        raise InputError(f"{folder} has no images: give a folder with a subfolder of {', '.join(SUFFIXES)} for a class")
    kinds = {"label": pa.string(), "domain": pa.string()} if depths == {True} else {"label": pa.string()}
    return image_table(folder, rows, kinds)


def image_table(
    root: Path, rows: Sequence[ImageRow], kinds: Mapping[str, pa.DataType], read: Callable[[Path], bytes] | None = None
) -> pa.Table:
    """Read images into a table; a large table lies in a memory-mapped file, on the disk of raysim's cache.

    Args:
        root: folder to which the paths in the table are relative.
        rows: files, and a value for each of the other columns.
        kinds: types of these columns.
        read: function that returns a file's content; by default its bytes.

    Raises:
        InputError: a file is not an image, or cannot be read; the message names it.
    """
    schema = pa.schema([("image", ENCODED), *kinds.items()])
    whole = sum(path.stat().st_size for path, _ in rows)
    batches = (_batch(root, group, schema, read or checked_image) for group in _groups(rows))
    return pa.Table.from_batches(batches, schema) if whole < MAPPED else _mapped(batches, schema)


def images_in(folder: Path) -> list[Path]:
    """Return the images of a folder, sorted by name; other files are skipped."""
    return sorted(path for path in _inside(folder) if path.suffix.lower() in SUFFIXES)


def checked_image(path: Path) -> bytes:
    """Return an image file's content; raise an InputError if it does not begin like an image."""
    try:
        data = read_bytes(path)
        with opened(data):
            return data
    except Exception as error:  # a decoder may raise anything
        raise InputError(
            f"{path} is not a whole image ({fault(error)}): give a JPEG, PNG or WebP file, or remove it"
        ) from error


def _batch(root: Path, rows: Sequence[ImageRow], schema: pa.Schema, read: Callable[[Path], bytes]) -> pa.RecordBatch:
    paths = [path.relative_to(root).as_posix() for path, _ in rows]
    contents = pa.array([read(path) for path, _ in rows], pa.binary())
    images = pa.StructArray.from_arrays([contents, pa.array(paths, pa.string())], fields=list(ENCODED))
    others = zip(*(values for _, values in rows), strict=True)
    columns = [pa.array(values, kind) for values, kind in zip(others, schema.types[1:], strict=True)]
    return pa.RecordBatch.from_arrays([images, *columns], schema=schema)


def _groups(rows: Sequence[ImageRow]) -> Iterator[list[ImageRow]]:
    group: list[ImageRow] = []
    held = 0
    for path, values in rows:
        size = path.stat().st_size
        check_bound(str(path), "bytes", size, "MAX_ROW_BYTES", "make the image smaller, or remove it")
        if group and held + size > BATCH_BYTES:
            yield group
            group, held = [], 0
        group.append((path, values))
        held += size
    if group:
        yield group


def _mapped(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> pa.Table:
    folder = cache()
    folder.mkdir(parents=True, exist_ok=True)
    # The file loses its name at once, so the disk is free as soon as the table is gone.
    with tempfile.NamedTemporaryFile(prefix="images-", suffix=".arrow", dir=folder) as file:
        with pa.ipc.new_file(file, schema) as writer:
            for batch in batches:
                writer.write_batch(batch)
        file.flush()
        return pa.ipc.open_file(pa.memory_map(str(regular(file.name)))).read_all()


def _images(folder: Path) -> list[Path]:
    images = _entries(folder)
    for path in images:
        if path.suffix.lower() not in SUFFIXES or not path.is_file():
            raise InputError(f"{path} is not an image: keep only files that end in {', '.join(SUFFIXES)}")
    return images


def _folders(folder: Path) -> list[Path]:
    entries = _entries(folder)
    for path in entries:
        if not path.is_dir():
            raise InputError(f"{path} is in no class: put each image into a folder named after its class")
    return entries


def _entries(folder: Path) -> list[Path]:
    entries = sorted(path for path in _inside(folder) if path.name[0] != "." and path.name not in CLUTTER)
    if not entries:
        raise InputError(f"{folder} has no images: give a folder with a subfolder of images for each class")
    for path in entries:
        if not path.name.isprintable():  # includes names that are not UTF-8, which Arrow cannot hold
            raise InputError(f"{str(path)!r} has a name that is not printable text: rename it")
    return entries


def _inside(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError as error:
        reason = error.strerror or str(error)
        raise InputError(f"{folder} is not a readable folder ({reason}): must be one of images; correct it") from error
