"""Preparation of a population's samples: images, standardisation, augmentation."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from algorithms import Augment
from partitioning import Population
from partitioning.common.errors import ElsewhereError, listing
from raysim.common.errors import InputError
from raysim.config.data import DataTable
from raysim.data.augment import augmentation, check_pixels
from raysim.data.decoding import decode_population, drop_columns
from raysim.data.encoding import encode_population, fit_encoding
from raysim.data.features import ArrayColumn, features
from raysim.data.images import ImageFormat
from raysim.data.labels import LabelReader
from raysim.data.standardise import Standardisation, standardisation
from raysim.data.tensors import decoder_of


@dataclass(frozen=True)
class PreparedSamples:
    """Samples of a population, ready to be read by workers.

    Args:
        path: folder of the population with decoded images.
        digest: sha256 of its manifest.json.
        shape: shape of a sample in training.
        whole: shape of a sample in evaluation, which crops nothing.
        labels: reader of the labels.
        standardise: standardisation of all inputs; None for none.
        augment: augmentation of inputs in training; None for none.
        columns: content of the file with the values that columns were encoded by; None without `[data.columns]`.
    """

    path: Path
    digest: str
    shape: tuple[int, ...]
    whole: tuple[int, ...]
    labels: LabelReader
    standardise: Standardisation | None
    augment: Augment | None
    columns: bytes | None = None


def prepare_samples(population: Population, data: DataTable) -> PreparedSamples:
    """Prepare a population's samples as `[data]` says; the results of long work go to the cache.

    Raises:
        InputError: the preparation does not fit the samples.
    """
    try:
        return _prepared(population, data)
    except ElsewhereError as error:
        raise InputError(
            f"{error}; with fleet.pinned = true no process reads the data of all sites to decode images, to "
            "encode or drop columns, to standardise or to check colours: encode and drop columns and decode images "
            "before `partitioning make`, which takes --standardise, or leave out data.columns, data.without, "
            "data.standardise and data.augment"
        ) from None


def _prepared(population: Population, data: DataTable) -> PreparedSamples:
    if data.population is not None and data.without:
        if data.columns is None:
            _check_left(population, data.without)
        population = Population.open(drop_columns(population, data.without), data.fold, data.validation)
    encoded, columns = population, None
    if data.columns is not None:
        encoding = fit_encoding(population, data.columns.rules)
        encoded = Population.open(encode_population(population, encoding))
        columns = encoding.to_json(population)
    path = decode_population(encoded, ImageFormat(data.size, data.channels))
    decoded = population if path == population.path else Population.open(path)
    decoder = decoder_of(decoded)
    standardise = standardisation(data.standardise, population, path)
    online = () if data.appends else data.changes
    augment = augmentation(online, data.strengths, standardise, decoder.shape, data.own_changes)
    shape = decoder.shape if augment is None else augment.shape(decoder.shape)
    _check_pixels(decoded, online)
    return PreparedSamples(path, decoded.digest, shape, decoder.shape, decoder.labels, standardise, augment, columns)


def _check_left(population: Population, names: Collection[str]) -> None:
    """Raise InputError if the columns that are left make no features; the copy's name would tell a user nothing."""
    left = pa.schema([field for field in population.schema if field.name not in names])
    try:
        features(left, population.manifest.label, population.manifest.dividing)
    except InputError as error:
        raise InputError(f"{population.path} without {listing(sorted(names))}: {error}") from None


def _check_pixels(population: Population, augmentations: Collection[str]) -> None:
    """Refuse to change colours of floats that are no pixels; bytes always are pixels."""
    manifest = population.manifest
    form = features(population.schema, manifest.label, manifest.dividing)
    if "colour-jitter" not in augmentations or not isinstance(form, ArrayColumn) or pa.types.is_uint8(form.values):
        return
    decode = decoder_of(population)
    for client in population.train_clients.tolist():
        x, _ = decode(population.batch(client))
        check_pixels(x, f"column {form.column!r} of client {client}")
