"""`verify`: every check that there is, on every byte of a population."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from partitioning.common.checks import Integers, floor_share
from partitioning.common.columns import class_codes, labels_of
from partitioning.common.errors import InputError
from partitioning.measures.features import Feature
from partitioning.schemes.registry import is_complete
from partitioning.store.files import sha256
from partitioning.store.population import MANIFEST, Population
from partitioning.store.splits import SPLITS, TEST, VALIDATION, split_of_fold

_ROWS = 2**16


def verify(path: str | Path, sites: Collection[str] | None = None) -> list[str]:
    """Check all of a population and return what is wrong with it, a line a finding; empty when all is sound.

    Checks, beyond what opening does: each file's sha256 and checksums, each client's rows, class counts and
    feature counts, the sums over clients, the splits and folds, that no source row stands twice, and that the
    folder has no other files. Raises InputError where the population cannot be opened.

    Args:
        path: the folder.
        sites: those of which the samples are there; None for all.
    """
    return list(_findings(Population.open(path, sites=sites)))


def _findings(population: Population) -> Iterator[str]:
    yield from _check_folder(population)
    yield from _check_splits(population)
    yield from _check_rows(population)
    yield from _check_moments(population)
    broken = set()
    here = {stored.name for stored in population.files}
    for stored in population.manifest.arrow_files:
        if stored.name not in here:
            continue
        path = population.path / stored.name
        if sha256(path) != stored.sha256:
            yield f"{path}: its sha256 is not the manifest's"
        try:
            population.check_file(stored)
        except InputError as error:
            broken.add(stored.name)  # one line for the file, not one for each of its clients
            yield str(error)
    yield from _check_clients(population, broken)
    yield from _check_tests(population, broken)


def _check_folder(population: Population) -> Iterator[str]:
    manifest = population.manifest
    known = {MANIFEST, *(stored.name for stored in manifest.files)}
    for path in sorted(population.path.iterdir()):
        if path.name not in known:
            yield f"{path}: not part of the population"
    batches = sum(shard.batches for shard in manifest.shards)
    if manifest.shards and batches != len(population):
        yield f"{population.path}: its shards hold {batches} clients where there are {len(population)}"
    if len(np.unique(_shards_by_site(population), axis=0)) > len(manifest.shards):
        yield f"{population.path}: a shard holds clients of two sites"
    if sum(population.test_slices) != manifest.counts.test_rows:
        yield f"{population.path}: its test slices do not add up to {manifest.counts.test_rows} rows"


def _shards_by_site(population: Population) -> Integers:
    # The site and the shard of each client [K, 2].
    places, sites = population.table.places, population.table.sites
    if places is None or sites is None:
        return np.zeros((0, 2), np.int64)
    return np.stack([np.asarray(sites.indices, np.int64), places.shard], axis=1)


def _check_splits(population: Population) -> Iterator[str]:
    asked, table, local_test = population.manifest.splits, population.table, population.manifest.local_test
    if not 0 <= local_test < 1 or not np.array_equal(table.n_test, floor_share(local_test, table.n)):
        yield f"{population.path}: the clients' own test parts are not the share {local_test} of their rows"
    if not asked.folds:
        if (table.fold != -1).any():
            yield f"{population.path}: clients are in folds where {MANIFEST} has none"
        for split, number in ((TEST, asked.test_clients), (VALIDATION, asked.validation_clients)):
            held_out = int(np.count_nonzero(table.split == SPLITS.index(split)))
            if held_out != number:
                yield f"{population.path}: {held_out} clients are held out for {split} where {MANIFEST} has {number}"
        return
    if table.fold.min() < 0 or table.fold.max() >= asked.folds:
        yield f"{population.path}: a client is in none of the folds 0 to {asked.folds - 1}"
    elif np.ptp(np.bincount(table.fold, minlength=asked.folds)) > 1:
        yield f"{population.path}: its folds do not have nearly equal numbers of clients"
    if not np.array_equal(table.split, split_of_fold(table.fold, 0, 1)):
        yield f"{population.path}: its splits are not those of fold 0"


def _check_rows(population: Population) -> Iterator[str]:
    try:
        rows = population.row_numbers
    except InputError as error:
        yield str(error)
        return
    total = population.manifest.counts.source_rows
    if total != rows.size and is_complete(population.manifest.scheme):
        yield f"{population.path}: {total - rows.size} of the source's {total} rows are on no client"
        return
    outside = np.flatnonzero((rows < 0) | (rows >= total))
    if outside.size:
        yield f"{population.path}: row {rows[outside[0]]} is not of the source, which has {total}"
        return
    counts = np.bincount(rows, minlength=total)
    if counts.max(initial=0) > 1:
        yield f"{population.path}: row {int(np.argmax(counts > 1))} of the source stands {counts.max()} times"


def _check_moments(population: Population) -> Iterator[str]:
    try:
        moments = population.moments
    except InputError as error:
        yield str(error)
        return
    if moments is not None and not np.array_equal(moments.counts(), population.sizes - population.test_sizes):
        yield f"{population.path}: its moments are not of the rows that the clients train on"


@dataclass(frozen=True)
class _Counted:
    """A column whose values are counted on every client, and the counts that clients.parquet has [K, C]."""

    column: str
    what: str
    feature: Feature
    expected: Integers


def _counted(population: Population) -> list[_Counted]:
    # Columns that `rewrite` has taken away can no longer be counted.
    manifest = population.manifest
    stored = {column.name for column in manifest.columns}
    classes = Feature(manifest.label, manifest.classes, None)
    counts = population.feature_counts
    return [
        _Counted(manifest.label, "classes", classes, population.class_counts),
        *(
            _Counted(feature.name, f"counts of {feature.name!r}", feature, counts[feature.name])
            for feature in manifest.features
            if feature.name in stored
        ),
    ]


def _check_clients(population: Population, broken: set[str]) -> Iterator[str]:
    if not population.manifest.shards:
        return  # index-only
    counted = _counted(population)
    for block in _blocks(population.sizes):
        batches: dict[int, pa.RecordBatch] = {}
        for client in block.tolist():
            if not population.are_here[client] or population.shard(client).name in broken:
                continue
            try:
                batches[client] = population.batch(client)
            except InputError as error:
                yield str(error)
        for each in counted:
            for client in _miscounted(
                {client: labels_of(batch, each.column) for client, batch in batches.items()}, each
            ):
                yield f"{population.path}: client {client} does not have the {each.what} that clients.parquet says"


def _blocks(sizes: Integers) -> list[Integers]:
    # Runs of clients with about `_ROWS` rows: what Arrow takes a call would otherwise be paid for each client.
    cuts = np.flatnonzero(np.diff(np.cumsum(sizes + 1) // _ROWS)) + 1
    return np.split(np.arange(sizes.size), cuts)


def _miscounted(columns: Mapping[int, pa.Array], counted: _Counted) -> list[int]:
    # A value that is no category counts for none, and so its client has too few.
    if not columns:
        return []
    width = counted.feature.size
    codes = counted.feature.codes(pa.chunked_array(list(columns.values())))
    owners = np.repeat(np.arange(len(columns)), [len(column) for column in columns.values()])
    cells = (owners * width + codes)[codes >= 0]
    counts = np.bincount(cells, minlength=len(columns) * width).reshape(-1, width)
    clients = np.array(list(columns))
    wrong: list[int] = clients[(counts != counted.expected[clients]).any(axis=1)].tolist()
    return wrong


def _check_tests(population: Population, broken: set[str]) -> Iterator[str]:
    for test in population.manifest.tests:
        if test.file.name not in broken:
            yield from _check_test(population, test.name, range(len(test.slices)))


def _check_test(population: Population, name: str | None, slices: Sequence[int]) -> Iterator[str]:
    manifest = population.manifest
    title = "" if name is None else f" of {name!r}"
    for number in slices:
        try:
            batch = population.test_batch(number, name)
        except InputError as error:
            yield str(error)
            continue
        if (class_codes(labels_of(batch, manifest.label), manifest.classes) < 0).any():
            yield f"{population.path}: test slice {number}{title} has labels that are no class"
