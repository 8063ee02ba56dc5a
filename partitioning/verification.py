"""`verify`: every check that there is, on every byte of a population."""

import hashlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from partitioning.checks import Integers
from partitioning.columns import class_codes
from partitioning.errors import InputError
from partitioning.files import StoredFile
from partitioning.population import MANIFEST, Population


def verify(path: str | Path) -> list[str]:
    """Check all of a population and return what is wrong with it, a line a finding; empty when all is sound.

    Checks, beyond what opening does: each file's sha256 and checksums, each client's rows and class counts,
    the sums over clients, and that the folder has no other files. Raises InputError where the population
    cannot be opened.
    """
    population = Population.open(path)
    return list(_findings(population))


def _findings(population: Population) -> Iterator[str]:
    yield from _check_folder(population)
    broken = set()
    for stored in _stored_files(population):
        path = population.path / stored.name
        with path.open("rb") as stream:
            if hashlib.file_digest(stream, "sha256").hexdigest() != stored.sha256:
                yield f"{path}: its sha256 is not the manifest's"
        try:
            population.check_file(stored)
        except InputError as error:
            broken.add(stored.name)  # one line for the file, not one for each of its clients
            yield str(error)
    yield from _check_clients(population, broken)
    yield from _check_test(population, broken)


def _stored_files(population: Population) -> tuple[StoredFile, ...]:
    test = population.manifest.test
    return population.manifest.shards + (() if test is None else (test.file,))


def _check_folder(population: Population) -> Iterator[str]:
    manifest = population.manifest
    known = {MANIFEST, manifest.clients.name, *(stored.name for stored in _stored_files(population))}
    for path in sorted(population.path.iterdir()):
        if path.name not in known:
            yield f"{path}: not part of the population"
    batches = sum(shard.batches for shard in manifest.shards)
    if batches != len(population):
        yield f"{population.path}: its shards hold {batches} clients where there are {len(population)}"
    if sum(population.test_slices) != manifest.counts.test_rows:
        yield f"{population.path}: its test slices do not add up to {manifest.counts.test_rows} rows"


def _check_clients(population: Population, broken: set[str]) -> Iterator[str]:
    for client in range(len(population)):
        if population.shard(client).name in broken:
            continue
        try:
            batch = population.batch(client)
        except InputError as error:
            yield str(error)
            continue
        counts = _count(population, batch)
        if counts is None or not np.array_equal(counts, population.class_counts[client]):
            yield f"{population.path}: client {client} does not have the classes that clients.parquet says"


def _check_test(population: Population, broken: set[str]) -> Iterator[str]:
    test = population.manifest.test
    if test is None or test.file.name in broken:
        return
    for number in range(len(test.slices)):
        try:
            batch = population.test_batch(number)
        except InputError as error:
            yield str(error)
            continue
        if _count(population, batch) is None:
            yield f"{population.path}: test slice {number} has labels that are no class"


def _count(population: Population, batch: pa.RecordBatch) -> Integers | None:
    manifest = population.manifest
    codes = class_codes(batch.column(manifest.label), manifest.classes)
    return None if (codes < 0).any() else np.bincount(codes, minlength=len(manifest.classes))
