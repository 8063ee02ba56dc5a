"""`training_part`: copy a population without its clients' own test parts, to try settings before those are seen."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from shutil import copyfile

import numpy as np
import pyarrow as pa

from partitioning.common.checks import Integers, floor_share, share
from partitioning.common.columns import Label, class_codes, labels_of
from partitioning.common.errors import InputError
from partitioning.measures.numeric import numeric_columns
from partitioning.store.manifest import MANIFEST
from partitioning.store.population import Population
from partitioning.store.writing import check_out, write_folder, write_rows, write_samples


def training_part(population: Population, out: str | Path, *, local_test: float) -> Population:
    """Write a population of the clients' training parts, whose last rows become their new own test parts.

    A client with n samples, the last t of them its own test part, keeps its first n - t samples. The last
    floor(local_test (n - t)) of these are its new test part. Clients, splits, folds and test sets stay. Row numbers
    count the samples that stay, and columns are not counted on clients.

    Args:
        population: population to read; the checksum of every batch is verified.
        out: folder to create; it must not exist, or be empty.
        local_test: share of a client's remaining samples, in [0, 1).

    Raises:
        InputError: the share is out of range, the folder is not empty, or the population has no samples.
    """
    local_test, folder, manifest = share("local_test", local_test), check_out(out), population.manifest
    if not manifest.shards:
        raise InputError(f"{population.path} has row numbers alone: make it with its samples")
    sizes = population.sizes - population.test_sizes
    counts = np.zeros_like(population.class_counts)
    table = replace(
        population.table,
        n=sizes,
        n_test=floor_share(local_test, sizes),
        class_counts=counts,
        feature_counts=np.zeros((len(sizes), 0), np.int64),
        locations=None,
    )
    with write_folder(folder) as draft:
        batches = _counted(_kept(population, sizes), counts, manifest.class_column, manifest.classes)
        measured = {} if manifest.moments is None else numeric_columns(population.schema, manifest.label)
        written = write_samples(draft, population.schema, batches, table, measured)
        for test in manifest.tests:
            copyfile(population.path / test.file.name, draft / test.file.name)
        total = int(sizes.sum())
        manifest = replace(
            manifest,
            local_test=local_test,
            features=(),
            counts=replace(manifest.counts, samples=total, source_rows=total),
            rows=write_rows(draft, np.arange(total)),
            **written,
        )
        (draft / MANIFEST).write_bytes(manifest.to_json())
    return Population.open(folder)


def _kept(population: Population, sizes: Integers) -> Iterator[pa.RecordBatch]:
    for client, size in enumerate(sizes.tolist()):
        yield population.batch(client).slice(0, size)


def _counted(
    batches: Iterable[pa.RecordBatch], counts: Integers, column: str, classes: Sequence[Label]
) -> Iterator[pa.RecordBatch]:
    """Yield the clients' batches, and fill in the samples of each class on each client [K, C]."""
    for client, batch in enumerate(batches):
        codes = class_codes(labels_of(batch, column), classes)
        counts[client] = np.bincount(codes[codes >= 0], minlength=len(classes))
        yield batch
