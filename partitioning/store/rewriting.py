"""`rewrite`: copy a population with other columns."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from shutil import copyfile

import pyarrow as pa

from partitioning.common.columns import describe
from partitioning.common.errors import InputError, listing
from partitioning.store.manifest import MANIFEST
from partitioning.store.population import Population
from partitioning.store.writing import Progress, check_out, reported, write_clients, write_folder, write_test

Convert = Callable[[pa.RecordBatch, str], pa.RecordBatch]
"""From a batch and the name of its owner ("client 3") to a batch with the same rows in the same order."""


def rewrite(
    population: Population, out: str | Path, convert: Convert, *, progress: Progress | None = None
) -> Population:
    """Write a population with converted batches; the clients and the order of rows stay.

    Stored moments stay if all of their columns do, or are only dropped; a population with other values has none.

    Args:
        population: population to read; the checksum of every batch is verified.
        out: folder to create; it must not exist, or be empty.
        convert: function that changes, adds or drops columns, except the label and the column of classes.
        progress: callback with the clients written so far and their number.
    """
    folder = check_out(out)
    first = convert(population.batch(0).slice(0, 0), "client 0")
    manifest, names = population.manifest, first.schema.names
    if lacking := {manifest.label, manifest.class_column} - set(names):
        raise InputError(f"convert drops {listing(sorted(lacking))}: must keep the columns of labels and classes")
    with write_folder(folder) as draft:
        measured = [] if population.moments is None else [name for name in population.moments.columns if name in names]
        changed: set[str] = set()

        def converted() -> Iterator[pa.RecordBatch]:
            for client in range(len(population)):
                batch = population.batch(client)
                made = convert(batch, f"client {client}")
                changed.update(name for name in measured if not made.column(name).equals(batch.column(name)))
                yield made

        batches = reported(converted(), len(population), progress)
        shards, clients = write_clients(draft, first.schema, batches, population.table)
        moments = None if changed else manifest.moments
        for table in (manifest.rows, moments):
            if table is not None:
                copyfile(table.check(population.path), draft / table.name)
        manifest = replace(
            manifest,
            columns=describe(first.schema),
            dividing=[name for name in manifest.dividing if name in names],
            clients=clients,
            shards=shards,
            moments=moments,
            tests=tuple(
                write_test(draft, name, first.schema, _slices(population, name, convert)) for name in population.tests
            ),
        )
        (draft / MANIFEST).write_bytes(manifest.to_json())
    return Population.open(folder)


def _slices(population: Population, name: str | None, convert: Convert) -> Iterator[pa.RecordBatch]:
    domain = "" if name is None else f" of {name!r}"
    for number in range(len(population.slices_of(name))):
        yield convert(population.test_batch(number, name), f"test slice {number}{domain}")
