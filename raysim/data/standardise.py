"""Standardisation: every value of a sample, or every channel of an image, to mean 0 and standard deviation 1."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from math import prod
from operator import add
from pathlib import Path

import numpy as np
import pyarrow as pa
import torch

from partitioning import Population
from partitioning.store.moments import Moment, Moments
from raysim.data.features import ImageColumn, NumberColumns, features
from raysim.data.tensors import LARGEST_PIXEL, decoder_of, naming_samples

VALUES_AT_ONCE = 2**20
"""Values in one batch of a moment."""

IMAGE_DIMENSIONS = 3
"""Dimensions of a sample that is an image: channels, height, width."""


@dataclass(frozen=True)
class MeanAndStd:
    """Means and standard deviations, and the map x <- (x - mean) / std in the type of x.

    Args:
        mean: one per value of the sample, or per channel of an image.
        std: likewise; 1 for values that are only centred.
    """

    mean: tuple[float, ...]
    std: tuple[float, ...]

    @classmethod
    def of(cls, moment: Moment) -> MeanAndStd:
        """Return the mean and standard deviation of a moment; a deviation of 0 becomes 1."""
        return cls(tuple(moment.mean.tolist()), tuple(np.where(moment.std > 0, moment.std, 1.0).tolist()))

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Return samples [n, *shape] standardised."""
        return (x - self._like(self.mean, x)) / self._like(self.std, x)

    def undo(self, x: torch.Tensor) -> torch.Tensor:
        """Return the original of standardised samples, to rounding."""
        return x * self._like(self.std, x) + self._like(self.mean, x)

    def _like(self, values: tuple[float, ...], x: torch.Tensor) -> torch.Tensor:
        return x.new_tensor(values).view(-1, 1, 1) if _is_image(x) else x.new_tensor(values).view(x.shape[1:])


@dataclass(frozen=True)
class Standardisation:
    """Standardisation by the same moments for all clients, or by each client's own.

    Args:
        scale: moments of the training clients together. All data use them, or with `per_client` only the test sets
            that belong to no client.
        per_client: whether each client has its own moments, over all rows before its own test part. Held-out clients
            have their own, too.

    Paper: RADFed, section IV ("-G" for global, "-L" for localized).

    Deviations:
        The global moments are those of the training clients. In the paper they are those of all clients, tested ones
        included.
    """

    scale: MeanAndStd
    per_client: bool = False

    def client(self, x: torch.Tensor, train_rows: int) -> torch.Tensor:
        """Return a client's samples standardised.

        Args:
            x: all samples of the client, [n, *shape].
            train_rows: rows before the client's own test part.
        """
        return (MeanAndStd.of(moment_of(x[:train_rows])) if self.per_client else self.scale)(x)


def standardisation(name: str, population: Population, decoded: Path) -> Standardisation | None:
    """Return the standardisation of all inputs; None for none.

    Args:
        name: "none", "global" or "client".
        population: the population, viewed in its fold.
        decoded: folder of the population with images as arrays; the population's own if nothing changed.
    """
    return None if name == "none" else Standardisation(global_scale(population, decoded), name == "client")


def moment_of(x: torch.Tensor) -> Moment:
    """Return the moment of samples [n, *shape]: of each value, or of each channel of images."""
    shape = tuple(x.shape[1:])
    step = max(1, VALUES_AT_ONCE // prod(shape))
    parts = (_moment(x[start : start + step]) for start in range(0, max(len(x), 1), step))
    return reduce(add, parts)


def global_scale(population: Population, decoded: Path) -> MeanAndStd:
    """Return the mean and standard deviation over all training samples of the training clients.

    Stored moments of the population are used if there are any of all features. Otherwise this reads its samples once.

    Args:
        population: the population, viewed in its fold.
        decoded: folder of the population with images as arrays; the population's own if nothing changed.
    """
    moments = population.moments if decoded == population.path else None
    stored = None if moments is None else _stored(population, moments)
    if stored is not None:
        return MeanAndStd.of(stored)
    samples = population if decoded == population.path else Population.open(decoded)
    decode = decoder_of(samples)
    whole = moment_of(torch.empty(0, *decode.shape))
    for client in population.train_clients.tolist():
        with naming_samples(samples, f"client {client}"):
            x, _ = decode(samples.batch(client))
        whole = whole + moment_of(x[: len(x) - int(samples.test_sizes[client])])
    return MeanAndStd.of(whole)


def _stored(population: Population, moments: Moments) -> Moment | None:
    """Turn the population's moments, which are those of stored values, into moments of its tensors.

    A population that was rewritten may have the moments of columns that are gone: None if features are others.
    """
    manifest = population.manifest
    form = features(population.schema, manifest.label, manifest.dividing)
    if isinstance(form, ImageColumn):
        raise ValueError("encoded images have no moments")
    sizes = dict.fromkeys(form.columns, 1) if isinstance(form, NumberColumns) else {form.column: prod(form.shape)}
    if not sizes.items() <= {name: place.stop - place.start for name, place in moments.columns.items()}.items():
        return None
    whole = moments.together(population.train_clients)
    if isinstance(form, NumberColumns):
        places = np.concatenate([np.arange(whole.mean.size)[moments.columns[name]] for name in form.columns])
        return Moment(whole.n, whole.mean[places], whole.std[places])
    place = moments.columns[form.column]
    largest = LARGEST_PIXEL if pa.types.is_uint8(form.values) else 1
    mean, std = whole.mean[place] / largest, whole.std[place] / largest
    if len(form.shape) != IMAGE_DIMENSIONS:
        return Moment(whole.n, mean, std)
    # All pixels of a channel count alike, so pool them like clients.
    channels = form.shape[0]
    pixels = np.full(mean.size // channels, whole.n)
    return Moment.pool(pixels, mean.reshape(channels, -1).T, std.reshape(channels, -1).T)


def _is_image(x: torch.Tensor) -> bool:
    return x.dim() == 1 + IMAGE_DIMENSIONS


def _moment(x: torch.Tensor) -> Moment:
    rows = x.movedim(1, -1).flatten(0, -2) if _is_image(x) else x.flatten(1)
    return Moment.of(rows.double().numpy())
