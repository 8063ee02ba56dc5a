"""Labels of a record batch as a tensor: classes of samples, of pixels or of positions, or numbers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import torch

from algorithms.core.finite import is_finite
from algorithms.training.loss import NO_POSITION, LabelKind, Loss
from partitioning.common.columns import Label, class_codes, has_nulls, is_label
from raysim.common.errors import InputError
from raysim.data.arrays import flat
from raysim.data.features import ArrayColumn, check_label, form_of
from raysim.data.targets import LARGEST_CLASS, is_sequence, masks_of, stated_classes

LABELS: Mapping[LabelKind, str] = {
    "class": "classes",
    "pixels": "images",
    "sequence": "sequences",
    "numbers": "numbers",
}
"""Nouns of the kinds of labels."""


@dataclass(frozen=True)
class LabelReader(ABC):
    """Reader of a label column.

    Args:
        column: name of the column.
        outputs: number of classes, or of numbers.
    """

    column: str
    outputs: int

    kind: ClassVar[LabelKind]

    @abstractmethod
    def label(self, shape: tuple[int, ...]) -> torch.Tensor:
        """Return the label of a sample of a shape, with any values."""

    def under(self, loss: Loss) -> LabelReader:
        """Return the reader with the number of outputs that a loss needs; only that of two classes changes."""
        return self

    def shape_of_outputs(self, samples: int, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape of a model's outputs for samples of a shape."""
        return (samples, self.outputs, *self.label(shape).shape)

    @abstractmethod
    def __call__(self, batch: pa.RecordBatch, shape: tuple[int, ...]) -> torch.Tensor:
        """Return the labels of a batch, [n, ...], in memory of their own.

        Args:
            batch: rows with this column.
            shape: shape of a sample.

        Raises:
            InputError: a label is wrong.
        """


@dataclass(frozen=True)
class ClassReader(LabelReader):
    """Reader of one class a sample: class i is the i-th smallest label. Labels are int64, [n].

    Args:
        classes: existing labels, ascending.
    """

    classes: tuple[Label, ...]

    kind = "class"

    def under(self, loss: Loss) -> LabelReader:
        return replace(self, outputs=1) if loss.one_logit and len(self.classes) == 2 else self

    def label(self, shape: tuple[int, ...]) -> torch.Tensor:
        return torch.zeros((), dtype=torch.int64)

    def __call__(self, batch: pa.RecordBatch, shape: tuple[int, ...]) -> torch.Tensor:
        tensor = torch.empty(batch.num_rows, dtype=torch.int64)
        labels, y = batch.column(self.column), tensor.numpy()
        # numpy compares uint64 with int64 as floats, which are not exact beyond 2^53.
        is_small = pa.types.is_integer(labels.type) and not pa.types.is_uint64(labels.type)
        y[...] = self._integer_codes(labels) if is_small else class_codes(labels, self.classes)
        if (y < 0).any():
            raise InputError(
                f"label {labels[int(np.argmin(y))]} is not one of the classes {_few(self.classes)}: "
                "name it among them, or drop its rows"
            )
        return tensor

    def _integer_codes(self, labels: pa.Array) -> npt.NDArray[np.int64]:
        # `class_codes` gives the same result, but takes longer than the first update of a small client.
        present, values = np.asarray(self.classes), labels.to_numpy(zero_copy_only=False)
        places = np.minimum(np.searchsorted(present, values), len(present) - 1)
        return np.where(present[places] == values, places, -1)


@dataclass(frozen=True)
class MaskReader(LabelReader):
    """Reader of a class for each pixel: uint8, [n, height, width], 255 for none.

    Args:
        shape: height and width.
    """

    kind = "pixels"

    def label(self, shape: tuple[int, ...]) -> torch.Tensor:
        return torch.zeros(shape[1:], dtype=torch.uint8)

    def __call__(self, batch: pa.RecordBatch, shape: tuple[int, ...]) -> torch.Tensor:
        values = flat(batch.column(self.column)).to_numpy(zero_copy_only=False)
        y = torch.empty((batch.num_rows, *shape[1:]), dtype=torch.uint8)
        y.numpy()[...] = values.reshape(y.shape)
        wrong = values[(values >= self.outputs) & (values <= LARGEST_CLASS)]
        if wrong.size:
            raise InputError(
                f"column {self.column!r} has pixels of the class {wrong[0]}: must be from 0 to {self.outputs - 1}, or "
                "255 for none; make the population again"
            )
        return y


@dataclass(frozen=True)
class PositionReader(LabelReader):
    """Reader of a class for each position of a sequence: int64, [n, length], -100 for none.

    Args:
        length: number of positions.
    """

    length: int

    kind = "sequence"

    def label(self, shape: tuple[int, ...]) -> torch.Tensor:
        return torch.zeros(self.length, dtype=torch.int64)

    def __call__(self, batch: pa.RecordBatch, shape: tuple[int, ...]) -> torch.Tensor:
        values = _values(batch, self.column)
        y = torch.empty((batch.num_rows, self.length), dtype=torch.int64)
        y.numpy()[...] = values.reshape(y.shape)
        wrong = values[((values < 0) | (values >= self.outputs)) & (values != NO_POSITION)]
        if wrong.size:
            raise InputError(
                f"column {self.column!r} has the class {wrong[0]}: must be from 0 to {self.outputs - 1}, or "
                f"{NO_POSITION} for none, by the column's metadata (classes); correct them"
            )
        return y


@dataclass(frozen=True)
class NumberReader(LabelReader):
    """Reader of numbers: float32, [n, numbers].

    Args:
        limits: least and largest number that the loss takes; None for any.
    """

    limits: tuple[float, float] | None = None

    kind = "numbers"

    def label(self, shape: tuple[int, ...]) -> torch.Tensor:
        return torch.zeros(self.outputs)

    def shape_of_outputs(self, samples: int, shape: tuple[int, ...]) -> tuple[int, ...]:
        return (samples, self.outputs)

    def __call__(self, batch: pa.RecordBatch, shape: tuple[int, ...]) -> torch.Tensor:
        y = torch.empty((batch.num_rows, self.outputs))
        with np.errstate(over="ignore"):
            y.numpy()[...] = _values(batch, self.column).reshape(y.shape)
        if not is_finite(y.numpy()):
            raise InputError(
                f"label column {self.column!r} has values that are infinite in float32, or not a number: correct them, "
                "or drop the rows"
            )
        least, largest = self.limits or (-inf, inf)
        wrong = y[(y < least) | (y > largest)]
        if wrong.numel():
            raise InputError(
                f"label column {self.column!r} has {wrong[0].item():g}: must be from {least:g} to {largest:g} for "
                'local.loss; scale the numbers, or set local.loss = "mse"'
            )
        return y


def label_reader(
    schema: pa.Schema, label: str, classes: Sequence[Label], limits: tuple[float, float] | None = None
) -> LabelReader:
    """Return the reader of a population's labels.

    Args:
        schema: columns of the population.
        label: name of the label column.
        classes: existing labels, in any order, if each sample has one class.
        limits: see `NumberReader`.

    Raises:
        InputError: the column cannot hold labels.
    """
    check_label(schema, label, "the population")
    kind = schema.field(label).type
    if is_label(kind):
        if pa.types.is_integer(kind) and any(not isinstance(each, int) for each in classes):
            raise InputError(
                f"label column {label!r} holds whole numbers, and the classes are {_few(classes)}: correct them"
            )
        known = tuple(sorted(set(classes)))
        return ClassReader(label, len(known), known)
    masks = masks_of(schema, label)
    if masks is not None:
        if not masks.is_bytes or masks.classes is None or masks.shape is None:
            raise InputError(f"column {label!r} holds labels that are images: decode the population first, once")
        return MaskReader(label, masks.classes)
    if pa.types.is_floating(kind):
        return NumberReader(label, 1, limits)
    form = form_of(schema.field(label))
    if not isinstance(form, ArrayColumn):
        raise InputError(f"label column {label!r} is {kind}: must be a list of a fixed size; convert it")
    (length,) = form.shape
    if not is_sequence(schema.field(label)):
        return NumberReader(label, length, limits)
    count = stated_classes(schema.field(label))
    if count is None:
        raise InputError(
            f"label column {label!r} holds a class for each position without a number of classes: write it into the "
            'column\'s metadata, as in field.with_metadata({"classes": "50"}), or make it floats if they are numbers'
        )
    return PositionReader(label, count, length)


def _values(batch: pa.RecordBatch, column: str) -> npt.NDArray[Any]:
    if has_nulls(batch.column(column)):
        raise InputError(f"label column {column!r} has missing values: fill them in, or drop the rows")
    values: npt.NDArray[Any] = flat(batch.column(column)).to_numpy(zero_copy_only=False)
    return values


def _few(labels: Sequence[Label]) -> str:
    listed = [str(label) for label in labels]
    return ", ".join(listed if len(listed) <= 12 else [*listed[:6], "...", *listed[-3:]])
