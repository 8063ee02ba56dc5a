"""`rewrite`: copy a population with other columns."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import accumulate, pairwise
from pathlib import Path
from shutil import copyfile

import numpy as np
import pyarrow as pa

from partitioning.common.checks import Integers
from partitioning.common.columns import describe
from partitioning.common.errors import InputError, listing
from partitioning.store.manifest import MANIFEST
from partitioning.store.population import Population
from partitioning.store.writing import Progress, check_out, reported, write_clients, write_folder, write_test

Convert = Callable[[pa.RecordBatch, str], pa.RecordBatch]
"""From a batch and the name of its owner, such as "client 3", to a batch with the same rows in the same order."""


def rewrite(
    population: Population,
    out: str | Path,
    convert: Convert,
    *,
    rows_at_once: int = 1,
    progress: Progress | None = None,
) -> Population:
    """Write a population with converted batches; the clients and the order of rows stay.

    Stored moments stay if all of their columns do, or are only dropped; a population with other values has none.

    Args:
        population: population to read; the checksum of every batch is verified.
        out: folder to create; it must not exist, or be empty.
        convert: function that changes, adds or drops columns, except the label and the column of classes.
        rows_at_once: rows of consecutive clients after which the next one is converted in another call. By default
            each client is converted alone.
        progress: callback with the clients written so far and their number.

    Raises:
        InputError: the folder is in use, or `convert` drops a column that must stay, or rows.
    """
    if rows_at_once < 1:
        raise InputError(f"rows_at_once = {rows_at_once}: must be at least 1; set 1")
    folder = check_out(out)
    first = convert(population.batch(0).slice(0, 0), "client 0")
    manifest, names = population.manifest, first.schema.names
    if lacking := {manifest.label, manifest.class_column} - set(names):
        raise InputError(f"convert drops {listing(sorted(lacking))}: must keep the columns of labels and classes")
    with write_folder(folder) as draft:
        changed: set[str] = set()
        batches = reported(_converted(population, convert, rows_at_once, changed), len(population), progress)
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


def _converted(population: Population, convert: Convert, rows: int, changed: set[str]) -> Iterator[pa.RecordBatch]:
    """Yield each client's converted batch; add the columns with moments whose values are others to `changed`."""
    measured = () if population.moments is None else population.moments.columns
    for client, end in client_runs(population.sizes, rows):
        parts = [population.batch(each) for each in range(client, end)]
        batch = parts[0] if len(parts) == 1 else pa.concat_batches(parts)
        made = _whole(convert, batch, f"client {client}" if len(parts) == 1 else f"clients {client} to {end - 1}")
        kept = (name for name in measured if name in made.schema.names)
        changed.update(name for name in kept if not made.column(name).equals(batch.column(name)))
        bounds = accumulate((part.num_rows for part in parts[:-1]), initial=0)
        for part, start in zip(parts, bounds, strict=True):
            # A copy: Arrow would write the next client's values behind those of a slice.
            yield made if len(parts) == 1 else pa.concat_batches([made.slice(start, part.num_rows)])


def _whole(convert: Convert, batch: pa.RecordBatch, owner: str) -> pa.RecordBatch:
    """Convert a batch; raise InputError if rows are missing."""
    made = convert(batch, owner)
    if made.num_rows != batch.num_rows:
        raise InputError(
            f"convert returns {made.num_rows} rows for {batch.num_rows} of {owner}: must keep all; correct it"
        )
    return made


def client_runs(sizes: Integers, rows: int) -> Iterator[tuple[int, int]]:
    """Yield the first client and the end of each run of clients, whose rows are at most `rows` beside one client's."""
    run = np.cumsum(np.maximum(sizes, 1)) // rows
    yield from pairwise([*np.flatnonzero(np.diff(run, prepend=-1)).tolist(), len(sizes)])


def _slices(population: Population, name: str | None, convert: Convert) -> Iterator[pa.RecordBatch]:
    domain = "" if name is None else f" of {name!r}"
    for number in range(len(population.slices_of(name))):
        yield _whole(convert, population.test_batch(number, name), f"test slice {number}{domain}")
