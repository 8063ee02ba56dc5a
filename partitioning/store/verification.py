"""`verify`: check every byte of a population."""

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa

from partitioning.common.checks import Integers, floor_share
from partitioning.common.columns import class_codes, labels_of
from partitioning.common.errors import InputError
from partitioning.measures.features import Feature
from partitioning.schemes.registry import is_complete
from partitioning.store.clients import ClientTable
from partitioning.store.files import sha256
from partitioning.store.manifest import MANIFEST
from partitioning.store.own_tests import is_test_row
from partitioning.store.population import Population
from partitioning.store.splits import SPLITS, TEST, VALIDATION, split_of_fold

_ROWS = 2**16


def verify(path: str | Path, sites: Collection[str] | None = None) -> list[str]:
    """Check a whole population and return its faults, one line each; empty if it is sound.

    Beyond the checks of opening: sha256 and checksums of each file, rows, class counts and feature counts of each
    client, sums over clients, splits and folds, repeated source rows, and foreign files in the folder.

    Args:
        path: folder of the population.
        sites: sites whose samples are present; None for all.

    Raises:
        InputError: the population cannot be opened.
    """
    return list(_find_faults(Population.open(path, sites=sites)))


def _find_faults(population: Population) -> Iterator[str]:
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
    for test in population.manifest.tests:
        if test.file.name not in broken:
            yield from _check_test(population, test.name)


def _check_folder(population: Population) -> Iterator[str]:
    manifest = population.manifest
    known = {MANIFEST, *(stored.name for stored in manifest.files)}
    for path in sorted(population.path.iterdir()):
        if path.name not in known:
            yield f"{path}: not part of the population"
    batches = sum(shard.batches for shard in manifest.shards)
    if manifest.shards and batches != len(population):
        yield f"{population.path}: its shards hold {batches} clients but there are {len(population)}"
    locations, sites = population.table.locations, population.table.sites
    if locations is not None and sites is not None:
        pairs = np.stack([np.asarray(sites.indices, np.int64), locations["shard"]], axis=1)
        if len(np.unique(pairs, axis=0)) > len(manifest.shards):
            yield f"{population.path}: a shard holds clients of two sites"
    if sum(population.test_slices) != manifest.counts.test_rows:
        yield f"{population.path}: its test slices do not add up to {manifest.counts.test_rows} rows"


def _is_share(local_test: float, table: ClientTable) -> bool:
    """Return whether each client's own test part is a share of its rows."""
    return 0 <= local_test < 1 and np.array_equal(table.n_test, floor_share(local_test, table.n))


def _check_splits(population: Population) -> Iterator[str]:
    splits, table, local_test = population.manifest.splits, population.table, population.manifest.local_test
    if not isinstance(local_test, str) and not _is_share(local_test, table):
        yield f"{population.path}: the clients' own test parts are not the share {local_test} of their rows"
    if not splits.folds:
        if (table.fold != -1).any():
            yield f"{population.path}: clients are in folds but {MANIFEST} has none"
        for split, number in ((TEST, splits.test_clients), (VALIDATION, splits.validation_clients)):
            held_out = int(np.count_nonzero(table.split == SPLITS.index(split)))
            if held_out != number:
                yield f"{population.path}: {held_out} clients are held out for {split} but {MANIFEST} has {number}"
        return
    if table.fold.min() < 0 or table.fold.max() >= splits.folds:
        yield f"{population.path}: a client is in none of the folds 0 to {splits.folds - 1}"
    elif np.ptp(np.bincount(table.fold, minlength=splits.folds)) > 1:
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
        counts = None if population.moments is None else population.moments.counts()
    except InputError as error:
        yield str(error)
        return
    if counts is not None and not np.array_equal(counts, population.sizes - population.test_sizes):
        yield f"{population.path}: its moments are not of the clients' training rows"


def _check_clients(population: Population, broken: set[str]) -> Iterator[str]:
    manifest = population.manifest
    if not manifest.shards:
        return  # index-only
    stored = {column.name for column in manifest.columns}  # columns dropped by `rewrite` can no longer be counted
    expected = {"classes": (Feature(manifest.class_column, manifest.classes, None), population.class_counts)}
    for feature in manifest.features:
        if feature.name in stored:
            expected[f"counts of {feature.name!r}"] = (feature, population.feature_counts[feature.name])
    for block in _blocks(population.sizes):
        batches: dict[int, pa.RecordBatch] = {}
        for client in block.tolist():
            if not population.are_here[client] or population.shard(client).name in broken:
                continue
            try:
                batches[client] = population.batch(client)
            except InputError as error:
                yield str(error)
        for title, (feature, counts) in expected.items():
            read = labels_of if title == "classes" else pa.RecordBatch.column
            columns = {client: read(batch, feature.name) for client, batch in batches.items()}
            for client in _miscounted(columns, feature, counts):
                yield f"{population.path}: client {client} does not have the {title} that clients.parquet says"
        if manifest.local_test in stored:
            yield from _misplaced_tests(batches, population, str(manifest.local_test))


def _misplaced_tests(batches: Mapping[int, pa.RecordBatch], population: Population, column: str) -> Iterator[str]:
    """Yield a line for each client whose last rows are not those that a column names as its own test part."""
    for client, batch in batches.items():
        tests = is_test_row(pa.chunked_array([batch.column(column)]), column)
        cut = len(tests) - int(population.test_sizes[client])
        if tests[:cut].any() or not tests[cut:].all():
            yield f"{population.path}: client {client} does not have the test rows that column {column!r} names"


def _blocks(sizes: Integers) -> list[Integers]:
    # Runs of clients with about `_ROWS` rows, because each call of Arrow has a fixed cost.
    cuts = np.flatnonzero(np.diff(np.cumsum(sizes + 1) // _ROWS)) + 1
    return np.split(np.arange(sizes.size), cuts)


def _miscounted(columns: Mapping[int, pa.Array], feature: Feature, expected: Integers) -> list[int]:
    # A value outside all categories counts for none, hence its client has too few.
    if not columns:
        return []
    codes = feature.codes(pa.chunked_array(list(columns.values())))
    owners = np.repeat(np.arange(len(columns)), [len(column) for column in columns.values()])
    cells = (owners * feature.size + codes)[codes >= 0]
    counts = np.bincount(cells, minlength=len(columns) * feature.size).reshape(-1, feature.size)
    clients = np.array(list(columns))
    wrong: list[int] = clients[(counts != expected[clients]).any(axis=1)].tolist()
    return wrong


def _check_test(population: Population, name: str | None) -> Iterator[str]:
    manifest = population.manifest
    title = "" if name is None else f" of {name!r}"
    for number in range(len(population.slices_of(name))):
        try:
            batch = population.test_batch(number, name)
        except InputError as error:
            yield str(error)
            continue
        if (class_codes(labels_of(batch, manifest.class_column), manifest.classes) < 0).any():
            yield f"{population.path}: test slice {number}{title} has labels that are no class"
