"""A client's record batch as tensors."""

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import torch

from algorithms.finite import is_finite
from partitioning import Population
from partitioning.columns import Label, class_codes
from raysim.data.arrays import flat, has_nulls
from raysim.data.features import Arrays, Images, check_label, features
from raysim.errors import InputError

LARGEST = 255
"""What uint8 arrays are divided by."""


class Decoder:
    """Turns record batches of one schema into tensors that own their memory.

    uint8 arrays become x / 255, in [0, 1]; all other numbers become the float32 next to them. A label becomes
    the index of its class.

    Args:
        schema: the population's columns.
        label: name of the label column.
        classes: the labels that exist, in any order; class i is the i-th smallest.
        dividing: columns that say whose a row is, and are no features.

    Raises:
        InputError: the columns cannot be features, or are encoded images, or the labels no whole numbers or strings.
    """

    def __init__(self, schema: pa.Schema, label: str, classes: Sequence[Label], dividing: Collection[str] = ()) -> None:
        check_label(schema, label, "the population")
        if pa.types.is_integer(schema.field(label).type) and any(not isinstance(each, int) for each in classes):
            raise InputError(
                f"label column {label!r} holds whole numbers, and the classes are {_few(classes)}: mend them"
            )
        form = features(schema, label, dividing)
        if isinstance(form, Images):
            raise InputError(f"column {form.column!r} holds encoded images: decode the population first, once")
        self._form = form
        self._label = label
        self._labels = sorted(set(classes))

    @property
    def shape(self) -> tuple[int, ...]:
        """One sample's shape: (1, 8, 8) for arrays, (columns,) for columns of numbers."""
        return self._form.shape if isinstance(self._form, Arrays) else (len(self._form.columns),)

    @property
    def classes(self) -> int:
        """The number of classes."""
        return len(self._labels)

    def __call__(self, batch: pa.RecordBatch) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the batch as x, float32 [n, *shape], and y, int64 [n] of class indices.

        Raises:
            InputError: a label is not one of the classes, or a feature is missing, infinite or not a number.
        """
        # Torch's own memory: Arrow's is mapped read-only, where a write would crash, and NumPy's is aligned
        # to fewer bytes, by which a matrix product may add in another order.
        x = torch.empty((batch.num_rows, *self.shape), dtype=torch.float32)
        y = torch.empty(batch.num_rows, dtype=torch.int64)
        with np.errstate(over="ignore"):
            self._read_features(batch, x.numpy())
        if not is_finite(x.numpy()):
            raise InputError(
                "the features have values that are infinite in float32, or not a number: fill them in, or drop the rows"
            )
        self._read_labels(batch, y.numpy())
        return x, y

    def _read_features(self, batch: pa.RecordBatch, x: npt.NDArray[np.float32]) -> None:
        names = [self._form.column] if isinstance(self._form, Arrays) else self._form.columns
        for name in names:
            if has_nulls(batch.column(name)):
                raise InputError(f"column {name!r} has missing values: fill them in, or drop the rows")
        if not isinstance(self._form, Arrays):
            for i, name in enumerate(self._form.columns):
                x[:, i] = batch.column(name).to_numpy(zero_copy_only=False)
            return
        values = flat(batch.column(self._form.column)).to_numpy(zero_copy_only=False).reshape(x.shape)
        if values.dtype == np.uint8:
            np.divide(values, np.float32(LARGEST), out=x)
        else:
            x[...] = values

    def _read_labels(self, batch: pa.RecordBatch, y: npt.NDArray[np.int64]) -> None:
        labels = batch.column(self._label)
        y[...] = self._numbers(labels) if pa.types.is_integer(labels.type) else class_codes(labels, self._labels)
        if (y < 0).any():
            raise InputError(
                f"label {labels[int(np.argmin(y))]} is not one of the classes {_few(self._labels)}: "
                "name it among them, or drop its rows"
            )

    def _numbers(self, labels: pa.Array) -> npt.NDArray[np.int64]:
        # As `class_codes`, which takes ten times as long: a first visit of a small client is no longer than that.
        known, values = np.asarray(self._labels), labels.to_numpy(zero_copy_only=False)
        places = np.minimum(np.searchsorted(known, values), len(known) - 1)
        return np.where(known[places] == values, places, -1)


@contextmanager
def samples_of(population: Population, owner: str) -> Iterator[None]:
    """Within, what is wrong with samples is told with the population's folder and their owner, "client 3"."""
    try:
        yield
    except InputError as error:
        told = str(error)
        raise error if str(population.path) in told else InputError(f"{population.path}: {owner}: {told}") from None


def decoder_of(population: Population) -> Decoder:
    """The decoder of a population's batches."""
    manifest = population.manifest
    with samples_of(population, "its columns"):
        return Decoder(population.schema, manifest.label, manifest.classes, manifest.dividing)


def _few(labels: Sequence[Label]) -> str:
    listed = [str(label) for label in labels]
    return ", ".join(listed if len(listed) <= 12 else [*listed[:6], "...", *listed[-3:]])
