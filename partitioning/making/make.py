"""`make`: from a source to a population on disk, in two passes over its samples."""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from partitioning.common.checks import floor_share, read_seed, share, whole
from partitioning.common.columns import check_columns, describe, is_image, labels_of
from partitioning.common.errors import InputError, listing, suggestion
from partitioning.making.arranging import MEMORY, arrange_samples, gather_batches
from partitioning.making.dealing import Asked, Deal
from partitioning.making.testsets import Tests, check_tests
from partitioning.measures.numeric import numeric_columns
from partitioning.schemes.parts import Parts
from partitioning.sources.joined import JoinedSource
from partitioning.sources.opening import open_source
from partitioning.sources.sound import SameSource, SoundSource
from partitioning.sources.source import Source, TableSource
from partitioning.store.clients import ClientTable
from partitioning.store.files import TableFile
from partitioning.store.manifest import Counts, Manifest, TestSet
from partitioning.store.moments import measured
from partitioning.store.population import MANIFEST, Population
from partitioning.store.splits import Splits
from partitioning.store.writing import (
    CLIENTS,
    MOMENTS,
    TEST_IMAGES,
    TEST_ROWS,
    Progress,
    check_out,
    slice_sizes,
    write_clients,
    write_folder,
    write_rows,
    write_table,
    write_test,
)

Samples: TypeAlias = pa.Table | Source | str | Path


def make(
    source: Samples | Sequence[Samples],
    out: str | Path,
    *,
    scheme: str,
    clients: int | None = None,
    seed: int = 0,
    label: str = "label",
    test: pa.Table | Tests | None = None,
    test_clients: float = 0,
    validation_clients: float = 0,
    folds: int = 0,
    stratify: bool = False,
    local_test: float = 0.0,
    site: str | None = None,
    features: Sequence[str] = (),
    buckets: int = 4,
    standardise: bool = False,
    index_only: bool = False,
    dataset: str | None = None,
    memory: int = MEMORY,
    progress: Progress | None = None,
    **parameters: Any,
) -> Population:
    """Partition a table's rows into clients and write them as a population.

    The first pass reads the columns that the scheme needs, the second hands every client's rows to the writer:
    a source other than a table in memory is never held whole.

    Args:
        source: the samples [N], without missing values: a table, a path, a source that `open_source` gave, or several
            with the same columns, of which each is a domain. Columns are stored unchanged in name, order and type.
        out: the folder to make; it must not exist, or be empty.
        scheme: a name in `SCHEMES`; `parameters` are what it takes besides, columns by name.
        clients: number of clients K; left out where the scheme finds the clients in the data.
        seed: keys every draw: the same call writes the same bytes.
        label: the column with the label: whole numbers, strings, or images, which are all of one class.
        test: a global test set with the same columns, kept apart from all clients; or one a domain, by name.
        test_clients: clients held out for test, a share in (0, 1) or a number.
        validation_clients: clients held out for validation, likewise.
        folds: puts every client in one of so many folds of nearly equal numbers of clients, in place of held-out
            clients; 3 or more, 0 for none. See `Population.fold`.
        stratify: gives held-out groups, or folds, clients of like sizes.
        local_test: share of a client's samples that is its own test part: its last floor(share n) rows.
        site: the column that says at which site a client is; all of its rows must say the same. Clients that the data
            name come site after site, and no shard holds clients of two sites.
        features: columns whose values are counted on every client; see `describe_features`. The scheme dirichlet-qp
            samples them where it is given `feature_alpha`.
        buckets: into how many quantiles numbers are counted.
        standardise: takes the mean and standard deviation of every numeric column; see `Population.moments`.
        index_only: writes which rows each client has, and no samples.
        dataset: what the manifest calls the source, by default its own name.
        memory: bytes of samples to hold at once when streaming; a client with more is held whole. It does not
            change what is written.
        progress: called with the clients written so far and K.

    Returns the population, opened; a client's rows are in random order. Raises InputError for wrong input,
    with nothing left behind.
    """
    asked = Asked(scheme, clients, read_seed(seed), label, tuple(features), buckets, parameters, site)
    memory, local_test = whole("memory", memory, least=1), share("local_test", local_test)
    split = partial(
        Splits.of, test_clients=test_clients, validation_clients=validation_clients, folds=folds, stratify=stratify
    )
    folder, source = check_out(out), _one_source(source, dataset)
    _check(asked, split, source)
    tests = check_tests(test, source.schema, label, source.name)
    measures = _check_numeric(source, label) if standardise else {}
    deal = asked.deal(source, [labels_of(table, label) for table in tests.values()])
    if deal.parts.shift is not None and (index_only or features):
        option = "index_only" if index_only else "features"
        raise InputError(f"scheme {scheme!r} changes the samples, of which {option} would not know: leave it out")
    _check_domains(deal.parts, tests)
    splits = split(len(deal.parts))
    owners = _own(deal, splits, local_test, asked.seed)
    with write_folder(folder) as draft:
        source = (
            source if isinstance(source, TableSource) else SameSource(source, label, deal.labels, deal.source_codes)
        )
        batches = arrange_samples(
            source, deal.rows, deal.sizes, scratch=draft / "scratch", memory=memory, progress=progress
        )
        batches = _changed(batches, deal, source, label)
        manifest = Manifest(
            dataset=dataset or source.name,
            label=label,
            classes=deal.classes,
            columns=describe(source.schema),
            scheme=scheme,
            parameters=deal.parameters,
            dividing=deal.dividing,
            report=deal.parts.report,
            seed=asked.seed,
            splits=splits,
            local_test=local_test,
            site=site,
            features=deal.features,
            counts=_counted(deal, tests),
            **_write_samples(draft, source.schema, batches, owners, measures, index_only),
            rows=write_rows(draft, deal.rows),
            tests=tuple(_write_test(draft, name, table, label) for name, table in tests.items()),
        )
        (draft / MANIFEST).write_bytes(manifest.to_json())
    return Population.open(folder)


def _counted(deal: Deal, tests: Mapping[str | None, pa.Table]) -> Counts:
    test_rows = tests[None].num_rows if None in tests else 0
    return Counts(len(deal.parts), deal.rows.size, deal.source_codes.size, test_rows)


def _one_source(source: Samples | Sequence[Samples], dataset: str | None) -> Source:
    if isinstance(source, pa.Table):
        return TableSource(source, dataset or "table")
    if isinstance(source, str | Path):
        return open_source(source)
    if isinstance(source, Sequence):
        if not source:
            raise InputError("there is no source: give one or more")
        sources = [_one_source(each, None) for each in source]
        return sources[0] if len(sources) == 1 else JoinedSource(tuple(sources))
    if not hasattr(source, "schema"):
        raise InputError(f"source is {type(source).__name__}: give a pyarrow table, a path, or what open_source gave")
    return source


def _check(asked: Asked, split: partial[Splits], source: Source) -> None:
    # What can be refused before anything is read.
    check_columns(source.schema, asked.label, name=source.name)
    asked.resolve(source)
    if asked.clients is not None:
        split(whole("clients", asked.clients, least=1))


def _check_domains(parts: Parts, tests: Mapping[str | None, pa.Table]) -> None:
    known = sorted(set(parts.domains or ()))
    for name in tests:
        if known and name is not None and name not in known:
            raise InputError(
                f"test names the domain {name!r}, which no client has: choose {listing(known)}"
                + suggestion(name, known)
            )


def _changed(batches: Iterator[pa.RecordBatch], deal: Deal, source: Source, label: str) -> Iterator[pa.RecordBatch]:
    if deal.parts.shift is None:
        return batches
    change = deal.parts.shift.fit(SoundSource(source).batches(), label, deal.labels)
    return (change(client, batch) for client, batch in enumerate(batches))


def _own(deal: Deal, splits: Splits, local_test: float, seed: int) -> ClientTable:
    # What is known of the clients before their samples are written.
    split, fold = splits.draw(deal.sizes, seed=seed)
    counts = [deal.count(codes, feature.size) for codes, feature in zip(deal.counted, deal.features, strict=True)]
    names, domains, sites = deal.parts.names, deal.parts.domains, deal.parts.sites
    return ClientTable(
        split=split,
        fold=fold,
        names=None if names is None else pa.array(names, pa.string()),
        domains=None if domains is None else pa.array(domains, pa.string()),
        sites=None if sites is None else pa.array(sites, pa.string()),
        n=deal.sizes,
        n_test=floor_share(local_test, deal.sizes),
        class_counts=deal.count(deal.codes, len(deal.classes)),
        feature_counts=np.concatenate([np.zeros((len(deal.parts), 0), np.int64), *counts], axis=1),
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


def _check_numeric(source: Source, label: str) -> dict[str, int]:
    columns = numeric_columns(source.schema, label)
    if not columns:
        raise InputError(
            f"standardise is True and {source.name} has no numeric column beside {label!r}: "
            "leave it out, or decode the columns to numbers"
        )
    return columns


def _write_test(folder: Path, name: str | None, test: pa.Table, label: str) -> TestSet:
    rows = np.arange(test.num_rows)
    sizes = slice_sizes(rows.size, TEST_IMAGES if is_image(test.schema.field(label).type) else TEST_ROWS)
    return write_test(folder, name, test.schema, gather_batches(test, rows, sizes))
