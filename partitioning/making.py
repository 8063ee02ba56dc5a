"""`make`: from a table to a population on disk."""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from partitioning.checks import Integers, floor_share, share, whole
from partitioning.clients import ClientTable
from partitioning.columns import check_table, class_codes, describe, distinct
from partitioning.errors import InputError
from partitioning.features import Feature, describe_features
from partitioning.files import TableFile
from partitioning.manifest import Counts, Manifest, TestSet
from partitioning.moments import measured, numeric_columns
from partitioning.population import MANIFEST, Population
from partitioning.schemes import partition, resolve
from partitioning.splits import Splits
from partitioning.streams import Purpose, generator
from partitioning.testsets import Tests, check_tests
from partitioning.writing import (
    CLIENTS,
    MOMENTS,
    Progress,
    appearing,
    check_out,
    gather,
    slices,
    write_clients,
    write_rows,
    write_table,
    write_test,
)


@dataclass(frozen=True)
class Deal:
    """What a scheme made of the rows.

    Args:
        rows: of the source, all clients' one client after the other, each client's in random order.
        sizes: rows a client [K].
        report: what the scheme says about itself, as JSON.
        names: of the clients [K], where the data name them.
        domains: of the clients [K], where a client belongs to a source.
    """

    rows: Integers
    sizes: Integers
    report: Mapping[str, Any] = field(default_factory=dict)
    names: Sequence[str] | None = None
    domains: Sequence[str] | None = None


def make(
    table: pa.Table,
    out: str | Path,
    *,
    scheme: str,
    clients: int,
    seed: int = 0,
    label: str = "label",
    test: pa.Table | Tests | None = None,
    test_clients: float = 0,
    validation_clients: float = 0,
    folds: int = 0,
    stratify: bool = False,
    local_test: float = 0.0,
    features: Sequence[str] = (),
    buckets: int = 4,
    standardise: bool = False,
    index_only: bool = False,
    dataset: str = "table",
    progress: Progress | None = None,
    **parameters: Any,
) -> Population:
    """Partition a table's rows into clients and write them as a population.

    Args:
        table: the samples [N], without missing values; columns are stored unchanged in name, order and type.
        out: the folder to make; it must not exist, or be empty.
        scheme: a name in `SCHEMES`; `parameters` are what it takes besides.
        clients: number of clients K.
        seed: keys every draw: the same call writes the same bytes.
        label: the column with the label.
        test: a global test set with the same columns, kept apart from all clients; or one a domain, by name.
        test_clients: clients held out for test, a share in (0, 1) or a number.
        validation_clients: clients held out for validation, likewise.
        folds: puts every client in one of so many folds of nearly equal numbers of clients, in place of held-out
            clients; 3 or more, 0 for none. See `Population.fold`.
        stratify: gives held-out groups, or folds, clients of like sizes.
        local_test: share of a client's samples that is its own test part: its last floor(share n) rows.
        features: columns whose values are counted on every client; see `describe_features`.
        buckets: into how many quantiles numbers are counted.
        standardise: takes the mean and standard deviation of every numeric column; see `Population.moments`.
        index_only: writes which rows each client has, and no samples.
        dataset: what the manifest calls the source.
        progress: called with the clients written so far and K.

    Returns the population, opened; a client's rows are in random order. Raises InputError for wrong input,
    with nothing left behind.
    """
    clients, seed = whole("clients", clients, least=1), whole("seed", seed, least=0)
    parameters, local_test = resolve(scheme, parameters), share("local_test", local_test)
    splits = Splits.of(
        clients, test_clients=test_clients, validation_clients=validation_clients, folds=folds, stratify=stratify
    )
    folder = check_out(out)
    check_table(table, label, name=dataset)
    tests = check_tests(test, table, label, dataset)
    measures = _check_numeric(table.schema, label, dataset) if standardise else {}
    classes = distinct([part.column(label) for part in (table, *tests.values())])
    codes = class_codes(table.column(label), classes)
    described, counted = describe_features(dict(zip(table.column_names, table.columns, strict=True)), features, buckets)
    deal = _deal(codes, scheme, clients=clients, seed=seed, **parameters)
    owners = _own(deal, splits, codes, len(classes), list(zip(described, counted, strict=True)), local_test, seed)
    with appearing(folder) as draft:
        batches = gather(table, deal.rows, deal.sizes, progress)
        manifest = Manifest(
            dataset=dataset,
            label=label,
            classes=classes,
            columns=describe(table.schema),
            scheme=scheme,
            parameters=parameters,
            report=dict(deal.report),
            seed=seed,
            splits=splits,
            local_test=local_test,
            features=described,
            counts=Counts(len(owners), deal.rows.size, codes.size, tests[None].num_rows if None in tests else 0),
            **_write_samples(draft, table.schema, batches, owners, measures, index_only),
            rows=write_rows(draft, deal.rows),
            tests=tuple(_write_test(draft, name, test) for name, test in tests.items()),
        )
        (draft / MANIFEST).write_bytes(manifest.to_json())
    return Population.open(folder)


def _deal(codes: Integers, scheme: str, *, seed: int, **options: Any) -> Deal:
    parts = partition(codes, scheme, seed=seed, **options)
    sizes = np.array([part.size for part in parts])
    return Deal(_shuffled(np.concatenate(parts), sizes, generator(seed, Purpose.ORDER).permutation(codes.size)), sizes)


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


def _own(
    deal: Deal,
    splits: Splits,
    codes: Integers,
    classes: int,
    features: Sequence[tuple[Feature, Integers]],
    local_test: float,
    seed: int,
) -> ClientTable:
    # What is known of the clients before their samples are written.
    split, fold = splits.draw(deal.sizes, seed=seed)
    counts = [_count(values[deal.rows], deal.sizes, feature.size) for feature, values in features]
    return ClientTable(
        split=split,
        fold=fold,
        names=None if deal.names is None else pa.array(deal.names, pa.string()),
        domains=None if deal.domains is None else pa.array(deal.domains, pa.string()),
        n=deal.sizes,
        n_test=floor_share(local_test, deal.sizes),
        class_counts=_count(codes[deal.rows], deal.sizes, classes),
        feature_counts=np.concatenate([np.zeros((deal.sizes.size, 0), np.int64), *counts], axis=1),
    )


def _write_samples(
    draft: Path,
    schema: pa.Schema,
    batches: Iterable[pa.RecordBatch],
    owners: ClientTable,
    measures: Mapping[str, int],
    index_only: bool,
) -> dict[str, Any]:
    # The files of the manifest that depend on the samples: without shards, only the moments need them.
    if measures:
        batches = measured(batches, draft / MOMENTS, measures, owners.n_test)
    if not index_only:
        shards, clients = write_clients(draft, schema, batches, owners)
    else:
        shards, clients = (), write_table(draft / CLIENTS, owners.to_arrow(()))
        deque(batches if measures else (), maxlen=0)
    moments = TableFile.of(draft / MOMENTS) if measures else None
    return {"shards": shards, "clients": clients, "moments": moments}


def _check_numeric(schema: pa.Schema, label: str, dataset: str) -> dict[str, int]:
    columns = numeric_columns(schema, label)
    if not columns:
        raise InputError(
            f"standardise is True and {dataset} has no numeric column beside {label!r}: "
            "leave it out, or decode the columns to numbers"
        )
    return columns


def _write_test(folder: Path, name: str | None, test: pa.Table) -> TestSet:
    rows = np.arange(test.num_rows)
    return write_test(folder, name, test.schema, gather(test, rows, slices(test.num_rows)))
