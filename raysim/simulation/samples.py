"""A population's samples as an experiment wants them: its pictures, its standardisation, its augmentation."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from algorithms import Augment
from partitioning import Population
from partitioning.common.errors import ElsewhereError
from raysim.common.errors import InputError
from raysim.config.data import DataTable
from raysim.data.augment import augmentation, check_pixels
from raysim.data.decoding import decode_population
from raysim.data.features import Arrays, features
from raysim.data.images import Picture
from raysim.data.standardise import Standardise, standardisation
from raysim.data.tensors import decoder_of


@dataclass(frozen=True)
class Prepared:
    """What is trained on, to be read where blocks run.

    Args:
        path: folder of the population, its images decoded.
        digest: the sha256 of its manifest.json.
        shape: of one sample in training.
        classes: how many there are.
        whole: shape of one sample in evaluation, where nothing is cut.
        per_pixel: whether labels are images.
        standardise: what is done to all inputs; None where they stay.
        augment: what changes inputs in training; None where they stay.
    """

    path: Path
    digest: str
    shape: tuple[int, ...]
    classes: int
    whole: tuple[int, ...]
    per_pixel: bool
    standardise: Standardise | None
    augment: Augment | None


def prepared(population: Population, data: DataTable) -> Prepared:
    """Prepare a population's samples; what takes long is done once, and kept in the cache.

    Args:
        population: in the view of its fold.
        data: the experiment's `[data]`.

    Raises:
        InputError: what is asked for cannot be done to these samples.
    """
    try:
        return _prepared(population, data)
    except ElsewhereError as error:
        raise InputError(
            f"{error}; with fleet.pinned = true nobody reads all sites' to decode images, to standardise or to "
            "check colours: make the population of arrays and with --standardise, or leave data.standardise and "
            "data.augment out"
        ) from None


def _prepared(population: Population, data: DataTable) -> Prepared:
    path = decode_population(population, picture=Picture(data.size, data.channels))
    decoded = population if path == population.path else Population.open(path)
    decoder = decoder_of(decoded)
    standardise = standardisation(data.standardise, population, path)
    online = () if data.appends else data.changes
    augment = augmentation(online, data.strengths, standardise, decoder.shape)
    shape = decoder.shape if augment is None else augment.shape(decoder.shape)
    _check_pixels(decoded, online)
    return Prepared(
        path, decoded.digest, shape, decoder.classes, decoder.shape, decoder.per_pixel, standardise, augment
    )


def _check_pixels(population: Population, augmentations: Collection[str]) -> None:
    """Refuse floats that are no pixels where colours are to be changed; of bytes there are no others."""
    manifest = population.manifest
    form = features(population.schema, manifest.label, manifest.dividing)
    if "colour-jitter" not in augmentations or not isinstance(form, Arrays) or pa.types.is_uint8(form.values):
        return
    decode = decoder_of(population)
    for client in population.train_clients.tolist():
        x, _ = decode(population.batch(client))
        check_pixels(x, augmentations, f"column {form.column!r} of client {client}")
