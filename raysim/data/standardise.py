"""Standardisation: every number of a sample, or every channel of an image, to mean 0 and standard deviation 1."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from math import prod
from operator import add
from pathlib import Path
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import torch

from partitioning import Population
from partitioning.store.moments import Moment, Moments
from raysim.data.features import Images, Numbers, features
from raysim.data.tensors import LARGEST, decoder_of, samples_of

VALUES = 2**20
"""Numbers that a moment is taken of at once."""

IMAGE = 3
"""Dimensions of a sample that is an image: channels, height, width."""


@dataclass(frozen=True)
class Scale:
    """x <- (x - mean) / std, in the type of x; where a standard deviation is 0 values are only centred.

    Args:
        mean: one a number of the sample, or one a channel where it is an image.
        std: likewise.
    """

    mean: tuple[float, ...]
    std: tuple[float, ...]

    @classmethod
    def of(cls, moment: Moment) -> Scale:
        """The scale that a moment says."""
        return cls(tuple(moment.mean.tolist()), tuple(np.where(moment.std > 0, moment.std, 1.0).tolist()))

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Return samples [n, *shape] standardised."""
        return (x - self._like(self.mean, x)) / self._like(self.std, x)

    def undo(self, x: torch.Tensor) -> torch.Tensor:
        """Return standardised samples as they were, to rounding."""
        return x * self._like(self.std, x) + self._like(self.mean, x)

    def _like(self, values: tuple[float, ...], x: torch.Tensor) -> torch.Tensor:
        return x.new_tensor(values).view(-1, 1, 1) if _is_image(x) else x.new_tensor(values).view(x.shape[1:])


@dataclass(frozen=True)
class Global:
    """The same moments for all clients and all test sets. Paper: RADFed, section IV ("-G").

    Deviations: the moments are those of the training clients; the paper's are of all clients, tested ones too.
    """

    scale: Scale

    def client(self, x: torch.Tensor, trained: int) -> torch.Tensor:
        """A client's samples, of which the first are those it would train on."""
        return self.scale(x)

    def test(self, x: torch.Tensor) -> torch.Tensor:
        """Samples of a test set that is nobody's."""
        return self.scale(x)


@dataclass(frozen=True)
class Own:
    """Each client's own moments, over all but its own test part; held-out clients have theirs, too.

    Args:
        everyone: for the test sets that are nobody's: the training clients' together.

    Paper: RADFed, section IV ("-L", localized).
    """

    everyone: Scale

    def client(self, x: torch.Tensor, trained: int) -> torch.Tensor:
        """A client's samples, of which the first are those it would train on."""
        return Scale.of(moment_of(x[:trained]))(x)

    def test(self, x: torch.Tensor) -> torch.Tensor:
        """Samples of a test set that is nobody's."""
        return self.everyone(x)


Standardise: TypeAlias = Global | Own

STANDARDISE: Mapping[str, type[Standardise]] = {"global": Global, "client": Own}
"""By the name in an experiment's file."""


def standardisation(name: str, population: Population, decoded: Path) -> Standardise | None:
    """What is done to all inputs.

    Args:
        name: "none", or of `STANDARDISE`.
        population: in the view of its fold.
        decoded: its folder with images as arrays; the same folder where nothing had to be changed.
    """
    return None if name == "none" else STANDARDISE[name](global_scale(population, decoded))


def moment_of(x: torch.Tensor) -> Moment:
    """The moment of samples [n, *shape]: of each number, or of each channel where a sample is an image."""
    shape = tuple(x.shape[1:])
    step = max(1, VALUES // prod(shape))
    parts = (_moment(x[start : start + step]) for start in range(0, max(len(x), 1), step))
    return reduce(add, parts)


def global_scale(population: Population, decoded: Path) -> Scale:
    """The scale of all training samples of the training clients.

    Where the population was made with moments they are taken; else its samples are passed once.

    Args:
        population: in the view of its fold.
        decoded: its folder with images as arrays; the same folder where nothing had to be changed.
    """
    if population.moments is not None and decoded == population.path:
        return Scale.of(_stored(population, population.moments))
    samples = population if decoded == population.path else Population.open(decoded)
    decode = decoder_of(samples)
    whole = moment_of(torch.empty(0, *decode.shape))
    for client in population.train_clients.tolist():
        with samples_of(samples, f"client {client}"):
            x, _ = decode(samples.batch(client))
        whole = whole + moment_of(x[: len(x) - int(samples.test_sizes[client])])
    return Scale.of(whole)


def _stored(population: Population, moments: Moments) -> Moment:
    """What the population's own moments, which are of numbers as they are stored, say of its tensors."""
    manifest = population.manifest
    form = features(population.schema, manifest.label, manifest.dividing)
    if isinstance(form, Images):
        raise ValueError("encoded images have no moments")
    whole = moments.together(population.train_clients)
    if isinstance(form, Numbers):
        places = np.concatenate([np.arange(whole.mean.size)[moments.columns[name]] for name in form.columns])
        return Moment(whole.n, whole.mean[places], whole.std[places])
    place = moments.columns[form.column]
    largest = LARGEST if pa.types.is_uint8(form.values) else 1
    mean, std = whole.mean[place] / largest, whole.std[place] / largest
    if len(form.shape) != IMAGE:
        return Moment(whole.n, mean, std)
    # All pixels of a channel count alike, so each is as a client of the pool.
    channels = form.shape[0]
    pixels = np.full(mean.size // channels, whole.n)
    return Moment.pool(pixels, mean.reshape(channels, -1).T, std.reshape(channels, -1).T)


def _is_image(x: torch.Tensor) -> bool:
    return x.dim() == 1 + IMAGE


def _moment(x: torch.Tensor) -> Moment:
    rows = x.movedim(1, -1).flatten(0, -2) if _is_image(x) else x.flatten(1)
    return Moment.of(rows.double().numpy())
