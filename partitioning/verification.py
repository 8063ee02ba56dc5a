"""`verify`: every check that there is, on every byte of a population."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from partitioning.checks import Integers
from partitioning.columns import Label, class_codes
from partitioning.errors import InputError
from partitioning.files import StoredFile
from partitioning.population import MANIFEST, Population

_ROWS = 2**16


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
    expected = population.class_counts
    for block in _blocks(population.sizes):
        labels: dict[int, pa.Array] = {}
        for client in block.tolist():
            if population.shard(client).name in broken:
                continue
            try:
                labels[client] = population.batch(client).column(population.manifest.label)
            except InputError as error:
                yield str(error)
        for client in _miscounted(labels, population.manifest.classes, expected):
            yield f"{population.path}: client {client} does not have the classes that clients.parquet says"


def _blocks(sizes: Integers) -> list[Integers]:
    # Runs of clients with about `_ROWS` rows: what Arrow takes a call would otherwise be paid for each client.
    cuts = np.flatnonzero(np.diff(np.cumsum(sizes + 1) // _ROWS)) + 1
    return np.split(np.arange(sizes.size), cuts)


def _miscounted(labels: Mapping[int, pa.Array], classes: Sequence[Label], expected: Integers) -> list[int]:
    # A label that is no class counts for none, and so its client has too few.
    if not labels:
        return []
    codes = class_codes(pa.chunked_array(list(labels.values())), classes)
    owners = np.repeat(np.arange(len(labels)), [len(column) for column in labels.values()])
    cells = (owners * len(classes) + codes)[codes >= 0]
    counts = np.bincount(cells, minlength=len(labels) * len(classes)).reshape(-1, len(classes))
    clients = np.array(list(labels))
    wrong: list[int] = clients[(counts != expected[clients]).any(axis=1)].tolist()
    return wrong


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
        if (class_codes(batch.column(population.manifest.label), population.manifest.classes) < 0).any():
            yield f"{population.path}: test slice {number} has labels that are no class"
