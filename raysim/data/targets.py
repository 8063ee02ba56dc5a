"""Labels that are no class of a sample: masks of images, classes of sequences, and several columns of numbers.

A mask has a class for each pixel, 255 for pixels without a class.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from PIL import Image

from algorithms.training.loss import NO_PIXEL, LabelKind
from partitioning.common.columns import is_image, is_label
from partitioning.sources.arrays import nested
from raysim.common.errors import InputError, unknown
from raysim.data.arrays import flat
from raysim.data.features import ArrayColumn, form_of, is_number
from raysim.data.images import fault, opened, with_places

Mask = npt.NDArray[np.uint8]

CLASSES = b"classes"
"""Key of a label column's metadata with the number of classes of its pixels."""

LARGEST_CLASS = NO_PIXEL - 1
"""Largest class that fits a byte, whose largest value means no class."""

MOST_CLASSES = 10**6
"""Largest number of classes of a position in a sequence."""

DIGITS = 10
"""Most digits of a number of classes; Python refuses to read numbers of thousands of digits."""

SHADE_FACTORS = {"L;2": 85, "L;4": 17}
"""Factors by which Pillow turns the values of grey files of 2 and 4 bits, which are classes here, into shades."""


@dataclass(frozen=True)
class MaskColumn:
    """A label column of images.

    Args:
        column: name of the column.
        shape: height and width of arrays; None for encoded images.
        is_bytes: whether it holds arrays of uint8, which need no conversion.
        classes: number of classes of its pixels; None if nobody has counted them.
    """

    column: str
    shape: tuple[int, ...] | None
    is_bytes: bool
    classes: int | None

    def each(self, batch: pa.RecordBatch, owner: str) -> Iterator[tuple[str, Mask]]:
        """Yield the place of each row, for error messages, and its mask [height, width].

        Args:
            batch: rows with this column.
            owner: name of the rows' owner, for the error message.

        Raises:
            InputError: a mask cannot be decoded, or has values that are not classes.
        """
        column, prefix = batch.column(self.column), f"column {self.column!r} of {owner}, row"
        if self.shape is None:
            for data, where in with_places(column, prefix):
                yield where, self._checked(mask_of(data, where), where)
            return
        values = flat(column).to_numpy(zero_copy_only=False).reshape(-1, *self.shape)
        for row, mask in enumerate(values):
            where = f"{prefix} {row},"
            yield where, self._checked(_bytes(mask, where), where)

    def _checked(self, mask: Mask, where: str) -> Mask:
        """Return the mask if the column's metadata allow all its classes."""
        beyond = mask[(mask >= self.classes) & (mask <= LARGEST_CLASS)] if self.classes is not None else mask[:0]
        if beyond.size:
            raise InputError(
                f"{where} has pixels of the class {beyond[0]}: must be from 0 to {(self.classes or 0) - 1}, or 255 for "
                "none, by the column's metadata (classes); correct these"
            )
        return mask

    def field(self, shape: tuple[int, int], classes: int) -> pa.Field:
        """Return the field of the converted column: arrays of uint8, and the number of their classes."""
        kind = pa.list_(pa.list_(pa.uint8(), shape[1]), shape[0])
        return pa.field(self.column, kind, metadata=class_metadata(classes))


def masks_of(schema: pa.Schema, label: str) -> MaskColumn | None:
    """Return the labels that are images; None if each sample has one class.

    Raises:
        InputError: the column's metadata have no valid number of classes.
    """
    field = schema.field(label)
    if not is_image(field.type):
        return None
    form, classes = form_of(field), stated_classes(field)
    if isinstance(form, ArrayColumn):
        return MaskColumn(label, form.shape, pa.types.is_uint8(form.values), classes)
    return MaskColumn(label, None, False, classes)


def stated_classes(field: pa.Field) -> int | None:
    """Return the number of classes in a label column's metadata; None if it has none."""
    stated = (field.metadata or {}).get(CLASSES)
    if stated is None:
        return None
    most = NO_PIXEL if is_image(field.type) else MOST_CLASSES
    if not (stated.isdigit() and len(stated) <= DIGITS and 2 <= int(stated) <= most):
        raise InputError(
            f"label column {field.name!r} has the metadata classes = {stated.decode(errors='replace')[:40]!r}: must be "
            f"a number of classes, from 2 to {most}; correct or remove it"
        )
    return int(stated)


def class_metadata(classes: int) -> dict[bytes, bytes]:
    """Return the metadata of a label column with this number of classes."""
    return {CLASSES: str(classes).encode()}


def check_classes_of_samples(schema: pa.Schema, label: str, key: str) -> None:
    """Raise an InputError if the labels are images; `key` needs one class per sample."""
    if label in schema.names and is_image(schema.field(label).type):
        raise InputError(
            f"{key} with label column {label!r}: must be left out, because its labels are images; remove it"
        )


def resized(mask: Mask, size: tuple[int, int]) -> Mask:
    """Return a mask of another height and width; each pixel takes the nearest one's class."""
    return np.asarray(Image.fromarray(mask).resize(size[::-1], Image.Resampling.NEAREST))


def mask_of(data: bytes | None, where: str) -> Mask:
    """Return one mask, [height, width].

    Args:
        data: content of a PNG file; None if the table has only the file's path.
        where: place of the mask, for the error message.

    Raises:
        InputError: the file is damaged or of another format, or its values are not classes.
    """
    if data is None:
        raise InputError(f"{where} has no bytes, at most a path: put the files' contents into the table")
    try:
        with opened(data, ("PNG",)) as image:
            packed = image.tile[0].args if image.tile else None
            values = np.asarray(image)
            if image.mode == "L" and (factor := SHADE_FACTORS.get(str(packed))):
                values = values // factor
    except Exception as error:  # a decoder may raise anything
        raise InputError(
            f"{where} cannot be decoded ({fault(error)}): give labels as whole PNG files, which are lossless"
        ) from error
    if values.ndim != 2:
        raise InputError(f"{where} has {values.shape[2]} channels: must have one, of classes; convert it")
    return _bytes(values, where)


def _bytes(values: npt.NDArray[np.generic], where: str) -> Mask:
    if values.dtype not in (np.uint8, np.bool_) and values.size and (values.min() < 0 or values.max() > 255):
        raise InputError(
            f"{where} has values from {values.min()} to {values.max()}: must be classes from 0 to {LARGEST_CLASS}, or "
            "255 for none; number the classes from 0"
        )
    return np.ascontiguousarray(values, np.uint8)


def joined_labels(table: pa.Table, labels: Sequence[str], keep: Collection[str]) -> tuple[pa.Table, str]:
    """Return the table with the columns of numbers `labels` as one of lists, float32, and its name.

    Args:
        table: rows with the columns.
        labels: columns of numbers.
        keep: columns that stay beside the new one.

    Raises:
        InputError: a column is missing or holds no numbers.
    """
    for name in labels:
        if name not in table.schema.names:
            raise unknown(f"label column {name!r} of data.label", name, table.schema.names)
        if not is_number(table.schema.field(name).type):
            raise InputError(
                f"label column {name!r} of data.label is {table.schema.field(name).type}: must hold numbers, because "
                "data.label is a list; convert it, or name one column of classes without the brackets"
            )
    columns = [table[name].cast(pa.float32(), safe=False).to_numpy() for name in labels]
    whole, together = nested(np.stack(columns, axis=1)), ", ".join(labels)
    rest = table.drop_columns([name for name in labels if name not in keep])
    if together in rest.schema.names:
        raise InputError(f"a column is named {together!r} like the list data.label: rename it")
    return rest.append_column(together, whole), together


def with_classes(tables: Sequence[pa.Table], label: str) -> list[pa.Table]:
    """Return tables with the number of classes in the metadata of labels that have a class for each position.

    Args:
        tables: rows to partition, and perhaps a test set.
        label: label column; other labels stay as they are.
    """
    fields = [table.schema.field(label) for table in tables if label in table.schema.names]
    if len(fields) < len(tables) or not is_sequence(fields[0]) or (fields[0].metadata or {}).get(CLASSES):
        return list(tables)
    chunks = [flat(chunk) for table in tables for chunk in table[label].chunks if len(chunk)]
    metadata = class_metadata(max(2, 1 + max((pc.max(chunk).as_py() for chunk in chunks), default=0)))
    return [
        table.set_column(table.schema.get_field_index(label), field.with_metadata(metadata), table[label])
        for table, field in zip(tables, fields, strict=True)
    ]


def is_sequence(field: pa.Field) -> bool:
    """Return whether a label column has a class for each position: lists of a fixed size with whole numbers."""
    kind = field.type
    return bool(pa.types.is_fixed_size_list(kind) and pa.types.is_integer(kind.value_type))


def label_kind(schema: pa.Schema, label: str) -> LabelKind:
    """Return the kind of a table's labels."""
    field = schema.field(label)
    if is_label(field.type):
        return "class"
    if is_image(field.type):
        return "pixels"
    return "sequence" if is_sequence(field) else "numbers"
