"""A client's record batch as tensors."""

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from math import prod

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import torch

from algorithms.core.finite import is_finite
from partitioning import Population
from partitioning.common.columns import Label, has_nulls
from raysim.common.errors import InputError
from raysim.data.arrays import flat
from raysim.data.features import ArrayColumn, ImageColumn, features
from raysim.data.labels import label_reader

LARGEST_PIXEL = 255
"""Divisor of uint8 arrays."""


class BatchDecoder:
    """Function from record batches of one schema to tensors that own their memory.

    uint8 arrays become x / 255, in [0, 1]. All other numbers become the nearest float32. Labels: see
    `raysim.data.labels`.

    Args:
        schema: columns of the population.
        label: name of the label column.
        classes: existing labels, in any order; class i is the i-th smallest.
        dividing: columns that identify a row's owner and are no features.
        limits: least and largest label that is a number; None for any.

    Raises:
        InputError: the columns cannot be features, or are encoded images, or the labels cannot be labels.
    """

    def __init__(
        self,
        schema: pa.Schema,
        label: str,
        classes: Sequence[Label],
        dividing: Collection[str] = (),
        limits: tuple[float, float] | None = None,
    ) -> None:
        form = features(schema, label, dividing)
        if isinstance(form, ImageColumn):
            raise InputError(f"column {form.column!r} holds encoded images: decode the population first, once")
        self._form = form
        self.labels = label_reader(schema, label, classes, limits)
        """Reader of the labels."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the shape of one sample: (1, 8, 8) for arrays, (columns,) for columns of numbers."""
        return self._form.shape if isinstance(self._form, ArrayColumn) else (len(self._form.columns),)

    @property
    def nbytes(self) -> int:
        """Return the bytes of a sample and its label."""
        return 4 * prod(self.shape) + self.labels.label(self.shape).nbytes

    def __call__(self, batch: pa.RecordBatch) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the batch as x, float32 [n, *shape], and y, its labels.

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
        return x, self.labels(batch, self.shape)

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


def decoder_of(population: Population, limits: tuple[float, float] | None = None) -> BatchDecoder:
    """Return the decoder of a population's batches, with limits of labels that are numbers."""
    manifest = population.manifest
    with naming_samples(population, "its columns"):
        return BatchDecoder(population.schema, manifest.label, manifest.classes, manifest.dividing, limits)
