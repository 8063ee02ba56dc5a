"""A client's record batch as tensors."""

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from math import prod

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import torch

from algorithms.engine.finite import is_finite
from partitioning import Population
from partitioning.common.columns import Label, class_codes
from raysim.common.errors import InputError
from raysim.data.arrays import flat, has_nulls
from raysim.data.features import ArrayColumn, ImageColumn, check_label, features
from raysim.data.masks import LARGEST_CLASS, masks_of

LARGEST_PIXEL = 255
"""Divisor of uint8 arrays."""


class BatchDecoder:
    """Function from record batches of one schema to tensors that own their memory.

    uint8 arrays become x / 255, in [0, 1]. All other numbers become the nearest float32. A label becomes the index of
    its class; a label that is an image holds such indices already.

    Args:
        schema: columns of the population.
        label: name of the label column.
        classes: existing labels, in any order; class i is the i-th smallest.
        dividing: columns that identify a row's owner and are no features.

    Raises:
        InputError: the columns cannot be features, or are encoded images, or the labels cannot be labels.
    """

    def __init__(self, schema: pa.Schema, label: str, classes: Sequence[Label], dividing: Collection[str] = ()) -> None:
        check_label(schema, label, "the population")
        if pa.types.is_integer(schema.field(label).type) and any(not isinstance(each, int) for each in classes):
            raise InputError(
                f"label column {label!r} holds whole numbers, and the classes are {_few(classes)}: correct them"
            )
        form = features(schema, label, dividing)
        if isinstance(form, ImageColumn):
            raise InputError(f"column {form.column!r} holds encoded images: decode the population first, once")
        masks = masks_of(schema, label)
        if masks is not None and (not masks.is_bytes or masks.classes is None):
            raise InputError(f"column {label!r} holds labels that are images: decode the population first, once")
        self._form = form
        self._label = label
        self._masks = masks
        self._labels = sorted(set(classes)) if masks is None else list(range(masks.classes or 0))

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the shape of one sample: (1, 8, 8) for arrays, (columns,) for columns of numbers."""
        return self._form.shape if isinstance(self._form, ArrayColumn) else (len(self._form.columns),)

    @property
    def classes(self) -> int:
        """Return the number of classes."""
        return len(self._labels)

    @property
    def per_pixel(self) -> bool:
        """Say whether labels are images."""
        return self._masks is not None

    @property
    def nbytes(self) -> int:
        """Return the bytes of a sample and its label."""
        return 4 * prod(self.shape) + (8 if self._masks is None else prod(self._masks.shape or ()))

    def __call__(self, batch: pa.RecordBatch) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the batch as x, float32 [n, *shape], and y, class indices.

        y is int64 [n], or uint8 [n, height, width] with 255 for no class if labels are images.

        Raises:
            InputError: a label is not one of the classes, or a feature is missing, infinite or not a number.
        """
        # Use torch's own memory. Arrow's is mapped read-only, and a write would crash. NumPy's is aligned to fewer
        # bytes, so a matrix product may add in another order.
        x = torch.empty((batch.num_rows, *self.shape), dtype=torch.float32)
        with np.errstate(over="ignore"):
            self._read_features(batch, x.numpy())
        if not is_finite(x.numpy()):
            raise InputError(
                "the features have values that are infinite in float32, or not a number: fill them in, or drop the rows"
            )
        return x, self._read_labels(batch) if self._masks is None else self._read_masks(batch)

    def _read_features(self, batch: pa.RecordBatch, x: npt.NDArray[np.float32]) -> None:
        names = [self._form.column] if isinstance(self._form, ArrayColumn) else self._form.columns
        for name in names:
            if has_nulls(batch.column(name)):
                raise InputError(f"column {name!r} has missing values: fill them in, or drop the rows")
        if not isinstance(self._form, ArrayColumn):
            for i, name in enumerate(self._form.columns):
                x[:, i] = batch.column(name).to_numpy(zero_copy_only=False)
            return
        values = flat(batch.column(self._form.column)).to_numpy(zero_copy_only=False).reshape(x.shape)
        if values.dtype == np.uint8:
            np.divide(values, np.float32(LARGEST_PIXEL), out=x)
        else:
            x[...] = values

    def _read_masks(self, batch: pa.RecordBatch) -> torch.Tensor:
        values = flat(batch.column(self._label)).to_numpy(zero_copy_only=False)
        y = torch.empty((batch.num_rows, *self.shape[1:]), dtype=torch.uint8)
        y.numpy()[...] = values.reshape(y.shape)
        wrong = values[(values >= self.classes) & (values <= LARGEST_CLASS)]
        if wrong.size:
            raise InputError(
                f"column {self._label!r} has pixels of the class {wrong[0]}: must be from 0 to {self.classes - 1}, or "
                "255 for none; make the population again"
            )
        return y

    def _read_labels(self, batch: pa.RecordBatch) -> torch.Tensor:
        tensor = torch.empty(batch.num_rows, dtype=torch.int64)
        labels, y = batch.column(self._label), tensor.numpy()
        y[...] = self._integer_codes(labels) if pa.types.is_integer(labels.type) else class_codes(labels, self._labels)
        if (y < 0).any():
            raise InputError(
                f"label {labels[int(np.argmin(y))]} is not one of the classes {_few(self._labels)}: "
                "name it among them, or drop its rows"
            )
        return tensor

    def _integer_codes(self, labels: pa.Array) -> npt.NDArray[np.int64]:
        # `class_codes` gives the same result, but takes longer than the first update of a small client.
        known, values = np.asarray(self._labels), labels.to_numpy(zero_copy_only=False)
        places = np.minimum(np.searchsorted(known, values), len(known) - 1)
        return np.where(known[places] == values, places, -1)


@contextmanager
def naming_samples(population: Population, owner: str) -> Iterator[None]:
    """Add the population's folder and the samples' owner, such as "client 3", to an InputError raised inside."""
    try:
        yield
    except InputError as error:
        message = str(error)
        if str(population.path) in message:
            raise
        raise InputError(f"{population.path}: {owner}: {message}") from None


def decoder_of(population: Population) -> BatchDecoder:
    """Return the decoder of a population's batches."""
    manifest = population.manifest
    with naming_samples(population, "its columns"):
        return BatchDecoder(population.schema, manifest.label, manifest.classes, manifest.dividing)


def _few(labels: Sequence[Label]) -> str:
    listed = [str(label) for label in labels]
    return ", ".join(listed if len(listed) <= 12 else [*listed[:6], "...", *listed[-3:]])
