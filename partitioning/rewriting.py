"""`rewrite`: from a population to the same one with other columns."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from partitioning.columns import describe
from partitioning.population import MANIFEST, Population
from partitioning.splits import TEST
from partitioning.writing import Owners, Progress, appearing, write_clients, write_test

Convert = Callable[[pa.RecordBatch, str], pa.RecordBatch]
"""From a batch and the name of its owner, "client 3", to a batch with the same rows in the same order."""


def rewrite(population: Population, out: Path, convert: Convert, *, progress: Progress | None = None) -> Population:
    """Write a population whose batches are converted; clients, splits, sizes, rows and their order stay.

    Args:
        population: the one to read; every batch is checked on the way.
        out: the folder to make; it must not exist, or be empty.
        convert: may change, add and drop columns, the label's apart.
        progress: called with the clients written so far and their number.
    """
    first = convert(population.batch(0).slice(0, 0), "client 0")
    owners = Owners(population.splits == TEST, population.test_sizes, population.class_counts)
    with appearing(out) as draft:
        shards, clients = write_clients(draft, first.schema, _clients(population, convert, progress), owners)
        test = population.manifest.test and write_test(draft, first.schema, _slices(population, convert))
        columns = describe(first.schema)
        manifest = replace(population.manifest, columns=columns, clients=clients, shards=shards, test=test)
        (draft / MANIFEST).write_bytes(manifest.to_json())
    return Population.open(out)


def _clients(population: Population, convert: Convert, progress: Progress | None) -> Iterator[pa.RecordBatch]:
    for client in range(len(population)):
        yield convert(population.batch(client), f"client {client}")
        if progress is not None:
            progress(client + 1, len(population))


def _slices(population: Population, convert: Convert) -> Iterator[pa.RecordBatch]:
    for number in range(len(population.test_slices)):
        yield convert(population.test_batch(number), f"test slice {number}")
