"""Labels that are images: a class for each pixel, 255 where it has none."""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from PIL import Image

from algorithms.training.losses import IGNORED
from partitioning.common.columns import is_image
from raysim.common.errors import InputError
from raysim.data.arrays import flat
from raysim.data.features import Arrays, form_of
from raysim.data.images import encoded, paths

Mask = npt.NDArray[np.uint8]

CLASSES = b"classes"
"""The key of a label column's metadata that says how many classes its pixels have."""

LARGEST_CLASS = IGNORED - 1
"""A pixel has a byte, whose largest value is no class."""


STEPS = {"L;2": 85, "L;4": 17}
"""What Pillow multiplies the values of grey files of 2 and 4 bits by, which are classes here, to make them shades."""


@dataclass(frozen=True)
class Masks:
    """A label column of images.

    Args:
        column: its name.
        shape: height and width where it holds arrays; None where it holds encoded images.
        is_bytes: whether it holds arrays of uint8, as it is to be read.
        classes: how many classes its pixels have; None where nobody has counted them.
    """

    column: str
    shape: tuple[int, ...] | None
    is_bytes: bool
    classes: int | None

    def each(self, batch: pa.RecordBatch, owner: str) -> Iterator[tuple[str, Mask]]:
        """Each row's mask, [height, width], and what to call it in a message.

        Args:
            batch: has the column.
            owner: whose it is.

        Raises:
            InputError: one cannot be decoded, or has values that are no classes.
        """
        column = batch.column(self.column)
        if self.shape is None:
            for row, (data, path) in enumerate(zip(encoded(column), paths(column), strict=True)):
                where = f"column {self.column!r} of {owner}, row {row}{f' ({path})' if path else ''},"
                yield where, self._known(mask_of(data.as_py(), where), where)
            return
        values = flat(column).to_numpy(zero_copy_only=False).reshape(-1, *self.shape)
        for row, mask in enumerate(values):
            where = f"column {self.column!r} of {owner}, row {row},"
            yield where, self._known(_bytes(mask, where), where)

    def _known(self, mask: Mask, where: str) -> Mask:
        """The mask where all its classes are among those that the column says that there are."""
        beyond = mask[(mask >= self.classes) & (mask <= LARGEST_CLASS)] if self.classes is not None else mask[:0]
        if beyond.size:
            raise InputError(
                f"{where} has pixels of the class {beyond[0]}: must be from 0 to {(self.classes or 0) - 1}, or 255 for "
                "none, as the column's metadata (classes) say; correct these"
            )
        return mask

    def field(self, shape: tuple[int, int], classes: int) -> pa.Field:
        """The column as it is read: arrays of uint8 with the number of their classes."""
        kind = pa.list_(pa.list_(pa.uint8(), shape[1]), shape[0])
        return pa.field(self.column, kind, metadata=counted(classes))


def masks_of(schema: pa.Schema, label: str) -> Masks | None:
    """The labels where they are images; None where each sample has a class.

    Raises:
        InputError: the column's metadata name no number of classes.
    """
    field = schema.field(label)
    if not is_image(field.type):
        return None
    form, classes = form_of(field), _classes(field)
    if isinstance(form, Arrays):
        return Masks(label, form.shape, pa.types.is_uint8(form.values), classes)
    return Masks(label, None, False, classes)


def _classes(field: pa.Field) -> int | None:
    """How many classes a label column's metadata say that there are; None where they say nothing."""
    told = (field.metadata or {}).get(CLASSES)
    if told is None:
        return None
    if not told.isdigit() or not 2 <= int(told) <= IGNORED:
        raise InputError(
            f"label column {field.name!r} has the metadata classes = {told.decode(errors='replace')[:40]!r}: must be a "
            f"number of classes, from 2 to {IGNORED}; correct or remove it"
        )
    return int(told)


def counted(classes: int) -> dict[bytes, bytes]:
    """What the metadata of a label column says."""
    return {CLASSES: str(classes).encode()}


def check_classes_of_samples(schema: pa.Schema, label: str, key: str) -> None:
    """Refuse a key that needs a class a sample; InputError where the labels are images."""
    if label in schema.names and is_image(schema.field(label).type):
        raise InputError(f"{key} with label column {label!r}: must be left out, for its labels are images; remove it")


def resized(mask: Mask, size: tuple[int, int]) -> Mask:
    """A mask at another height and width, each pixel the nearest one's."""
    return np.asarray(Image.fromarray(mask).resize(size[::-1], Image.Resampling.NEAREST))


def mask_of(data: bytes | None, where: str) -> Mask:
    """Return one mask, [height, width].

    Args:
        data: the file's content, a PNG; None where the table has only the file's path.
        where: the mask, for the message.

    Raises:
        InputError: the file is damaged or of another format, or its values are no classes.
    """
    if data is None:
        raise InputError(f"{where} has no bytes, at most a path: put the files' contents into the table")
    try:
        with Image.open(io.BytesIO(data), formats=("PNG",)) as image:
            packed = image.tile[0].args if image.tile else None
            values = np.asarray(image)
            if image.mode == "L" and (step := STEPS.get(str(packed))):
                values = values // step
    except Exception as error:
        # Of any class: a decoder raises what it trips over.
        reason = str(error).partition("\n")[0].partition(" <_io")[0] or type(error).__name__
        raise InputError(
            f"{where} cannot be decoded ({reason}): give labels as whole PNG files, which lose nothing"
        ) from error
    if values.ndim != 2:
        raise InputError(f"{where} has {values.shape[2]} channels: must have one, whose values are classes; convert it")
    return _bytes(values, where)


def _bytes(values: npt.NDArray[np.generic], where: str) -> Mask:
    if values.dtype not in (np.uint8, np.bool_) and values.size and (values.min() < 0 or values.max() > 255):
        raise InputError(
            f"{where} has values from {values.min()} to {values.max()}: must be classes from 0 to {LARGEST_CLASS}, or "
            "255 for none; number the classes from 0"
        )
    return np.ascontiguousarray(values, np.uint8)
