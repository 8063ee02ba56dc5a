"""`make`: from a source to a population on disk, in two passes over its samples."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from partitioning.arranging import MEMORY, arranged, gathered
from partitioning.checks import Integers, floor_share, share, whole
from partitioning.columns import check_columns, check_rows, check_table, check_values, class_codes, describe, distinct
from partitioning.errors import InputError
from partitioning.manifest import Counts, Manifest, TestFile
from partitioning.population import MANIFEST, Population
from partitioning.schemes import partition, resolve
from partitioning.sources import Source, TableSource, read_columns
from partitioning.splits import draw_held_out
from partitioning.streams import Purpose, generator
from partitioning.writing import Owners, Progress, appearing, check_out, slices, write_clients, write_test


def make(
    table: pa.Table | Source,
    out: str | Path,
    *,
    scheme: str,
    clients: int,
    seed: int = 0,
    label: str = "label",
    test: pa.Table | None = None,
    test_clients: float = 0,
    local_test: float = 0.0,
    dataset: str | None = None,
    memory: int = MEMORY,
    progress: Progress | None = None,
    **parameters: Any,
) -> Population:
    """Partition a table's rows into clients and write them as a population.

    The first pass reads the columns that the scheme needs, the second hands every client's rows to the writer:
    a source other than a table in memory is never held whole.

    Args:
        table: the samples [N], or a source of them that `open_source` gave, without missing values; columns are
            stored unchanged in name, order and type.
        out: the folder to make; it must not exist, or be empty.
        scheme: a name in `SCHEMES`; `parameters` are what it takes besides.
        clients: number of clients K.
        seed: keys every draw: the same call writes the same bytes.
        label: the column with the label.
        test: a global test set with the same columns, kept apart from all clients.
        test_clients: clients held out for test, a share in (0, 1) or a number.
        local_test: share of a client's samples that is its own test part: its last floor(share n) rows.
        dataset: what the manifest calls the source, by default its own name.
        memory: bytes of samples to hold at once when streaming; a client with more is held whole. It does not
            change what is written.
        progress: called with the clients written so far and K.

    Returns the population, opened; a client's rows are in random order. Raises InputError for wrong input,
    with nothing left behind.
    """
    clients, seed = whole("clients", clients, least=1), whole("seed", seed, least=0)
    memory = whole("memory", memory, least=1)
    parameters, local_test = resolve(scheme, parameters), share("local_test", local_test)
    folder = check_out(out)
    source = TableSource(table, dataset or "table") if isinstance(table, pa.Table) else table
    check_columns(source.schema, label, name=source.name)
    test = None if test is None else _check_test(test, source, label)
    held_out = draw_held_out(clients, test_clients, seed=seed)
    labels = _read_labels(source, label)
    classes = distinct([labels, *([] if test is None else [test.column(label)])])
    codes = class_codes(labels, classes)
    rows, sizes = _deal(codes, scheme, clients=clients, seed=seed, **parameters)
    owners = Owners(held_out, floor_share(local_test, sizes), _count(codes[rows], sizes, len(classes)))
    with appearing(folder) as draft:
        batches = arranged(source, rows, sizes, scratch=draft / "scratch", memory=memory, progress=progress)
        shards, clients_file = write_clients(draft, source.schema, batches, owners)
        manifest = Manifest(
            dataset=dataset or source.name,
            label=label,
            classes=classes,
            columns=describe(source.schema),
            scheme=scheme,
            parameters=parameters,
            seed=seed,
            test_clients=int(np.count_nonzero(held_out)),
            local_test=local_test,
            counts=Counts(clients, codes.size, 0 if test is None else test.num_rows),
            clients=clients_file,
            shards=shards,
            test=None if test is None else _write_test(draft, test),
        )
        (draft / MANIFEST).write_bytes(manifest.to_json())
    return Population.open(folder)


def _read_labels(source: Source, label: str) -> pa.ChunkedArray:
    labels = read_columns(source, [label])
    check_rows(labels, name=source.name)
    check_values(labels, name=source.name)
    return labels.column(label)


def _check_test(test: pa.Table, source: Source, label: str) -> pa.Table:
    name = f"the test set of {source.name}"
    check_table(test, label, name=name)
    if test.schema.names != source.schema.names or test.schema.types != source.schema.types:
        raise InputError(
            f"{name} has the columns {_columns(test.schema)} where the samples have "
            f"{_columns(source.schema)}: give both the same names and types, in the same order"
        )
    # Equal types may still name a list's inner field differently: Parquet says "element", memory "item".
    return test.cast(source.schema)


def _deal(codes: Integers, scheme: str, *, seed: int, **options: Any) -> tuple[Integers, Integers]:
    # All clients' rows, one client after the other, each in random order; and how many each has.
    parts = partition(codes, scheme, seed=seed, **options)
    sizes = np.array([part.size for part in parts])
    return _shuffled(np.concatenate(parts), sizes, generator(seed, Purpose.ORDER).permutation(codes.size)), sizes


def _shuffled(rows: Integers, sizes: Integers, ranks: Integers) -> Integers:
    # Orders each client's rows by rank, in one sort of (client, rank) because a million small ones are slow.
    by_rank = np.empty_like(ranks)
    by_rank[ranks] = np.arange(ranks.size)
    keys = np.repeat(np.arange(sizes.size), sizes) * ranks.size + ranks[rows]
    keys.sort()
    shuffled: Integers = by_rank[keys % ranks.size]
    return shuffled


def _count(codes: Integers, sizes: Integers, classes: int) -> Integers:
    cells = np.repeat(np.arange(sizes.size) * classes, sizes) + codes
    counts: Integers = np.bincount(cells, minlength=sizes.size * classes).reshape(-1, classes)
    return counts


def _write_test(folder: Path, test: pa.Table) -> TestFile:
    return write_test(folder, test.schema, gathered(test, np.arange(test.num_rows), slices(test.num_rows)))


def _columns(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} ({field.type})" for field in schema)
