"""`make`: from a source to a population on disk, in two passes over the samples."""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias, cast

import numpy as np
import pyarrow as pa

from partitioning.common.checks import floor_share, read_seed, share, whole
from partitioning.common.columns import check_columns, describe, is_image, labels_of
from partitioning.common.errors import InputError, listing, suggestion
from partitioning.making.arranging import MEMORY, arrange_samples, gather_batches
from partitioning.making.dealing import Assignment, DealOptions, deal
from partitioning.making.testsets import Tests, check_tests
from partitioning.measures.numeric import numeric_columns
from partitioning.schemes.parts import Parts
from partitioning.sources.checked import check_source, check_unchanged
from partitioning.sources.joined import JoinedSource
from partitioning.sources.memory import is_pair, table_of, tables_of
from partitioning.sources.opening import open_source
from partitioning.sources.source import Source, TableSource
from partitioning.store.clients import ClientTable
from partitioning.store.files import TableFile
from partitioning.store.manifest import MANIFEST, Manifest, TestSet, Totals
from partitioning.store.moments import measure_moments
from partitioning.store.population import Population
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

SourceLike: TypeAlias = Source | str | Path | object
"""A source, a path, or data in memory, see `partitioning.sources.memory`."""


def make(
    source: SourceLike,
    out: str | Path,
    *,
    scheme: str,
    clients: int | None = None,
    seed: int = 0,
    label: str = "label",
    by: str | None = None,
    test: object | Mapping[str | None, object] = None,
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
    """Partition the rows of a source into clients and write them as a population.

    The first pass reads the columns that the scheme needs. The second pass writes every client's rows. Only a table in
    memory is ever held whole. Equal calls write equal bytes.

    Args:
        source: samples [N] without missing values: a path, a source from `open_source`, or data in memory: a pyarrow
            table, a pair `(X, y)` of arrays, a data set of PyTorch or Hugging Face, a frame of pandas or polars, a
            dictionary of columns, or a dictionary of these with the keys `train` and `test`. A list of sources with
            equal columns is a domain each. Columns of tables and files keep their name, order and type.
        out: folder to create; it must not exist, or be empty.
        scheme: name in `SCHEMES`; `parameters` are its further parameters, columns by name.
        clients: number of clients K; omitted if the scheme finds the clients in the data.
        seed: key of every draw.
        label: label column: whole numbers or strings, which are classes; or images, floats, or lists of a fixed size,
            which are all of one class. The labels of a pair get this name.
        by: column whose values stand for the classes, if labels are none; it is no feature then.
        test: global test set with the same columns, a table or other data in memory, or a mapping from domains to
            their test sets.
        test_clients: clients held out for test, a share in (0, 1) or a number.
        validation_clients: clients held out for validation, a share in (0, 1) or a number.
        folds: number of folds of clients, instead of held-out clients; 3 or more, 0 for none. See `Population.fold`.
        stratify: whether held-out groups or folds get clients of similar sizes.
        local_test: share of each client's samples that is its own test part: its last floor(share n) rows.
        site: column with the site of a client, equal in all of its rows. Clients that the data name are sorted by
            site, and no shard holds clients of two sites.
        features: columns whose values are counted on every client; see `describe_features`. The scheme dirichlet-qp
            samples them if `feature_alpha` is given.
        buckets: number of quantile buckets of a numeric feature.
        standardise: whether to store mean and standard deviation of every numeric column; see `Population.moments`.
        index_only: whether to write only the row numbers of each client, without samples.
        dataset: name of the source in the manifest; by default its own name.
        memory: limit of the samples held at once when streaming, in bytes; a larger client is held whole. It does not
            change the written bytes.
        progress: callback with the clients written so far and K.

    Returns:
        The opened population; each client's rows are in random order.

    Raises:
        InputError: an argument or the source is wrong; nothing is left behind.
    """
    options = DealOptions(scheme, clients, read_seed(seed), label, tuple(features), buckets, parameters, site, by)
    memory, local_test = whole("memory", memory, least=1, most=2**50), share("local_test", local_test)
    split = partial(
        Splits.of, test_clients=test_clients, validation_clients=validation_clients, folds=folds, stratify=stratify
    )
    folder, (source, own_test) = check_out(out), _opened(source, dataset, label)
    _check(options, split, source)
    tests = check_tests(_test_of(test, own_test, label), source.schema, label, source.name)
    measures = _check_numeric(source, label) if standardise else {}
    assignment = deal(source, options, [labels_of(table, options.classes) for table in tests.values()])
    if assignment.parts.shift is not None and (index_only or features):
        option = "index_only" if index_only else "features"
        raise InputError(
            f"scheme {scheme!r} changes the samples, and {option} would describe the old ones: leave it out"
        )
    _check_domains(assignment.parts, tests)
    splits = split(len(assignment.parts))
    table = _client_table(assignment, splits, local_test, options.seed)
    with write_folder(folder) as draft:
        if not isinstance(source, TableSource):
            source = check_unchanged(source, options.classes, assignment.labels, assignment.source_codes)
        batches = arrange_samples(
            source, assignment.rows, assignment.sizes, scratch=draft / "scratch", memory=memory, progress=progress
        )
        batches = _shift(batches, assignment, source, label)
        manifest = Manifest(
            dataset=dataset or source.name,
            label=label,
            by=by,
            classes=assignment.classes,
            columns=describe(source.schema),
            scheme=scheme,
            parameters=assignment.parameters,
            dividing=assignment.dividing,
            report=assignment.parts.report,
            seed=options.seed,
            splits=splits,
            local_test=local_test,
            site=site,
            features=assignment.features,
            counts=_totals(assignment, tests),
            **_write_samples(draft, source.schema, batches, table, measures, index_only),
            rows=write_rows(draft, assignment.rows),
            tests=tuple(_write_test(draft, name, rows, label) for name, rows in tests.items()),
        )
        (draft / MANIFEST).write_bytes(manifest.to_json())
    return Population.open(folder)


def _opened(source: SourceLike, dataset: str | None, label: str) -> tuple[Source, pa.Table | None]:
    if isinstance(source, str | Path):
        return open_source(source), None
    if isinstance(source, Sequence) and not is_pair(source):
        if not source:
            raise InputError("there is no source: give one or more")
        sources = [_opened(each, None, label)[0] for each in source]
        return sources[0] if len(sources) == 1 else JoinedSource(tuple(sources)), None
    if hasattr(source, "schema") and hasattr(source, "batches"):
        return cast("Source", source), None
    train, test = tables_of(source, label)
    return TableSource(train, dataset or "table"), test


def _test_of(test: Any, own: pa.Table | None, label: str) -> pa.Table | Tests | None:
    if test is None:
        return own
    if own is not None:
        raise InputError("test is given, and the source has a test set of its own: leave one out")
    if isinstance(test, Mapping):
        return {name: table_of(each, label) for name, each in test.items()}
    return table_of(test, label)


def _check(options: DealOptions, split: partial[Splits], source: Source) -> None:
    # Refuse wrong options before anything is read.
    check_columns(source.schema, options.label, name=source.name)
    options.resolve(source)
    if options.clients is not None:
        split(whole("clients", options.clients, least=1))


def _check_numeric(source: Source, label: str) -> dict[str, int]:
    columns = numeric_columns(source.schema, label)
    if not columns:
        raise InputError(
            f"standardise is True and {source.name} has no numeric column beside {label!r}: "
            "leave it out, or decode the columns to numbers"
        )
    return columns


def _check_domains(parts: Parts, tests: Mapping[str | None, pa.Table]) -> None:
    known = sorted(set(parts.domains or ()))
    for name in tests:
        if known and name is not None and name not in known:
            raise InputError(
                f"test names the domain {name!r}, which no client has: choose {listing(known)}"
                + suggestion(name, known)
            )


def _client_table(assignment: Assignment, splits: Splits, local_test: float, seed: int) -> ClientTable:
    # Everything known of the clients before their samples are written.
    split, fold = splits.draw(assignment.sizes, seed=seed)
    counted = zip(assignment.counted, assignment.features, strict=True)
    counts = [assignment.count(codes, feature.size) for codes, feature in counted]
    parts = assignment.parts
    names, domains, sites = (
        None if words is None else pa.array(words, pa.string()) for words in (parts.names, parts.domains, parts.sites)
    )
    return ClientTable(
        split=split,
        fold=fold,
        names=names,
        domains=domains,
        sites=sites,
        n=assignment.sizes,
        n_test=floor_share(local_test, assignment.sizes),
        class_counts=assignment.count(assignment.codes, len(assignment.classes)),
        feature_counts=np.concatenate([np.zeros((len(parts), 0), np.int64), *counts], axis=1),
    )


def _shift(
    batches: Iterator[pa.RecordBatch], assignment: Assignment, source: Source, label: str
) -> Iterator[pa.RecordBatch]:
    shift = assignment.parts.shift
    if shift is None:
        return batches
    change = shift.fit(check_source(source).batches(), label, assignment.labels)
    return (change(client, batch) for client, batch in enumerate(batches))


def _totals(assignment: Assignment, tests: Mapping[str | None, pa.Table]) -> Totals:
    test_rows = tests[None].num_rows if None in tests else 0
    return Totals(len(assignment.parts), assignment.rows.size, assignment.source_codes.size, test_rows)


def _write_samples(
    draft: Path,
    schema: pa.Schema,
    batches: Iterable[pa.RecordBatch],
    table: ClientTable,
    measures: Mapping[str, int],
    index_only: bool,
) -> dict[str, Any]:
    # Files that depend on the samples. Without shards, only the moments read them.
    if measures:
        batches = measure_moments(batches, draft / MOMENTS, measures, table.n_test)
    if not index_only:
        shards, clients = write_clients(draft, schema, batches, table)
    else:
        shards, clients = (), write_table(draft / CLIENTS, table.to_arrow(()))
        deque(batches if measures else (), maxlen=0)
    moments = TableFile.of(draft / MOMENTS) if measures else None
    return {"shards": shards, "clients": clients, "moments": moments}


def _write_test(folder: Path, name: str | None, test: pa.Table, label: str) -> TestSet:
    rows = np.arange(test.num_rows)
    sizes = slice_sizes(rows.size, TEST_IMAGES if is_image(test.schema.field(label).type) else TEST_ROWS)
    return write_test(folder, name, test.schema, gather_batches(test, rows, sizes))
