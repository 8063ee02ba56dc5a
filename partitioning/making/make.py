"""`make`: from a source to a population on disk, in two passes over the samples."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias, cast

import numpy as np
import pyarrow as pa

from partitioning.common.checks import whole
from partitioning.common.columns import describe, is_image, labels_of
from partitioning.common.errors import InputError, excerpt, listing, suggestion
from partitioning.making.arranging import MEMORY, arrange_samples, gather_batches
from partitioning.making.dealing import Assignment, deal
from partitioning.making.options import PartitionOptions
from partitioning.making.testsets import Tests, check_tests
from partitioning.measures.numeric import numeric_columns
from partitioning.schemes.parts import Parts
from partitioning.sources.checked import check_source, check_unchanged
from partitioning.sources.joined import JoinedSource
from partitioning.sources.memory import is_pair, table_of, tables_of
from partitioning.sources.opening import open_source
from partitioning.sources.source import Source, TableSource
from partitioning.store.clients import ClientTable
from partitioning.store.manifest import MANIFEST, Manifest, TestSet, Totals
from partitioning.store.population import Population
from partitioning.store.splits import Splits
from partitioning.store.writing import (
    TEST_IMAGES,
    TEST_ROWS,
    Progress,
    check_out,
    reported,
    write_folder,
    write_rows,
    write_samples,
    write_test,
)

SourceLike: TypeAlias = Source | str | Path | object
"""A source, a path, or data in memory, see `partitioning.sources.memory`."""

TABLE = "table"
"""Name of data in memory."""


def make(
    source: SourceLike,
    out: str | Path,
    *,
    test: object | Mapping[str | None, object] = None,
    dataset: str | None = None,
    memory: int = MEMORY,
    progress: Progress | None = None,
    **options: Any,
) -> Population:
    """Partition the rows of a source into clients and write them as a population.

    The first pass reads the columns that the scheme needs. The second pass writes every client's rows. Only a table in
    memory is ever held whole. Equal calls write equal bytes.

    Args:
        source: samples [N]: a path, a source from `open_source`, or data in memory: a pyarrow
            table, a pair `(X, y)` of arrays, a data set of PyTorch or Hugging Face, a frame of pandas or polars, a
            dictionary of columns, or a dictionary of these with the keys `train` and `test`. A list of sources with
            equal columns is a domain each. Columns of tables and files keep their name, order and type.
        out: folder to create; it must not exist, or be empty.
        test: global test set with the same columns, a table or other data in memory, or a mapping from domains to
            their test sets. Its values are cast to the types of the source where none of them changes.
        dataset: name of the source in the manifest; by default its own name.
        memory: limit of the samples held at once when streaming, in bytes; a larger client is held whole. It does not
            change the written bytes.
        progress: callback with the clients written so far and K.
        options: options of the partition, see `PartitionOptions`: the name of the `scheme`, and if wanted `clients`,
            `seed`, `label`, `by`, `test_clients`, `validation_clients`, `folds`, `stratify`, `local_test`, `site`,
            `features`, `buckets`, `standardise`, `index_only`, `missing`; any other keyword is a parameter of the
            scheme, columns by name.

    Returns:
        The opened population; each client's rows are in random order.

    Raises:
        InputError: an argument or the source is wrong; nothing is left behind.
    """
    checked, memory = PartitionOptions.of(options), whole("memory", memory, least=1, most=2**50)
    if not isinstance(dataset, str | None):
        raise InputError(f"dataset is {dataset!r:.80}: give a name as text")
    folder = check_out(out)
    planned = _plan(source, test, dataset, checked)
    with write_folder(folder) as draft:
        manifest = _write(draft, planned, memory, progress)
        (draft / MANIFEST).write_bytes(manifest.to_json())
    return Population.open(folder)


@dataclass(frozen=True)
class PlannedPopulation:
    """Population before its samples are written: everything that the first pass decides."""

    source: Source
    dataset: str
    options: PartitionOptions
    tests: Tests
    measured: Mapping[str, int]  # numbers per sample of each column whose moments are written
    assignment: Assignment
    splits: Splits


def _plan(samples: SourceLike, test: object, dataset: str | None, options: PartitionOptions) -> PlannedPopulation:
    source, own_test = _opened(samples, dataset, options.label)
    options.check(source)
    tests = check_tests(
        _test_of(test, own_test, options.label), source.schema, options.label, source.name, options.missing
    )
    measured = _check_numeric(source, options) if options.standardise else {}
    assignment = deal(source, options, [labels_of(table, options.classes) for table in tests.values()])
    _check_shift(assignment.parts, options)
    _check_domains(assignment.parts, tests)
    splits = options.splits(len(assignment.parts))
    return PlannedPopulation(source, dataset or source.name, options, tests, measured, assignment, splits)


def _write(draft: Path, planned: PlannedPopulation, memory: int, progress: Progress | None) -> Manifest:
    # Second pass: write every file of the population except its manifest.
    source, options, assignment = planned.source, planned.options, planned.assignment
    if not isinstance(source, TableSource):
        source = check_unchanged(source, options.classes, assignment.labels, assignment.source_codes)
    batches = arrange_samples(
        source,
        assignment.rows,
        assignment.parts.sizes,
        scratch=draft / "scratch",
        memory=memory,
        missing=options.missing,
    )
    batches = reported(batches, len(assignment.parts), progress)
    return Manifest(
        dataset=planned.dataset,
        label=options.label,
        by=options.by,
        classes=assignment.classes,
        columns=describe(source.schema),
        scheme=options.scheme,
        parameters=assignment.parameters,
        dividing=assignment.dividing,
        report=assignment.parts.report,
        seed=options.seed,
        splits=planned.splits,
        local_test=options.local_test,
        site=options.site,
        features=assignment.features,
        counts=_totals(assignment, planned.tests),
        **write_samples(
            draft,
            source.schema,
            _shift(batches, planned, source),
            _client_table(planned),
            planned.measured,
            index_only=options.index_only,
        ),
        rows=write_rows(draft, assignment.rows),
        tests=tuple(_write_test(draft, name, rows, options.label) for name, rows in planned.tests.items()),
    )


def _opened(source: SourceLike, dataset: str | None, label: str) -> tuple[Source, pa.Table | None]:
    if isinstance(source, str | Path):
        return open_source(source), None
    if isinstance(source, Sequence) and not is_pair(source):
        return _joined(source, label)
    if hasattr(source, "schema") and hasattr(source, "batches"):
        return cast("Source", source), None
    train, test = tables_of(source, label)
    return TableSource(train, dataset or TABLE), test


def _joined(sources: Sequence[SourceLike], label: str) -> tuple[Source, pa.Table | None]:
    if not sources:
        raise InputError("there is no source: give one or more")
    opened = [_opened(each, None, label) for each in sources]
    if len(opened) == 1:
        return opened[0]
    if any(test is not None for _, test in opened):
        raise InputError(
            "several sources are given, and one has a test set of its own: leave it out, and give test as a mapping "
            "from domains to their test sets"
        )
    parts = [part for part, _ in opened]
    # Data in memory have no name. Several of them are numbered, because each is a domain.
    unnamed = [place for place, part in enumerate(parts) if isinstance(part, TableSource) and part.name == TABLE]
    for place in unnamed if len(unnamed) > 1 else ():
        parts[place] = replace(cast("TableSource", parts[place]), name=f"{TABLE} {place + 1}")
    return JoinedSource(tuple(parts)), None


def _test_of(test: Any, own: pa.Table | None, label: str) -> pa.Table | Tests | None:
    if test is None:
        return own
    if own is not None:
        raise InputError("test is given, and the source has a test set of its own: leave one out")
    if isinstance(test, Mapping):
        return {name: table_of(each, label) for name, each in test.items()}
    return table_of(test, label)


def _check_numeric(source: Source, options: PartitionOptions) -> dict[str, int]:
    label, missing = options.label, options.missing
    if missing:
        raise InputError(
            f"standardise is True and missing is {listing(list(missing))}: moments are only of columns without missing "
            "values; leave one out"
        )
    columns = numeric_columns(source.schema, label)
    if not columns:
        raise InputError(
            f"standardise is True and {source.name} has no numeric column beside {label!r}: "
            "leave it out, or decode the columns to numbers"
        )
    return columns


def _check_shift(parts: Parts, options: PartitionOptions) -> None:
    if parts.shift is not None and (options.index_only or options.features):
        option = "index_only" if options.index_only else "features"
        raise InputError(
            f"scheme {options.scheme!r} changes the samples, and {option} would describe the old ones: leave it out"
        )


def _check_domains(parts: Parts, tests: Tests) -> None:
    known = sorted(set(parts.domains or ()))
    for name in tests:
        if known and name is not None and name not in known:
            raise InputError(
                f"test names the domain {name!r}, which no client has: choose {excerpt(known)}"
                + suggestion(name, known)
            )


def _client_table(planned: PlannedPopulation) -> ClientTable:
    # Everything known of the clients before their samples are written.
    assignment, options = planned.assignment, planned.options
    split, fold = planned.splits.draw(assignment.parts.sizes, seed=options.seed)
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
        n=assignment.parts.sizes,
        n_test=assignment.n_test,
        class_counts=assignment.count(assignment.codes, len(assignment.classes)),
        feature_counts=np.concatenate([np.zeros((len(parts), 0), np.int64), *counts], axis=1),
    )


def _shift(batches: Iterator[pa.RecordBatch], planned: PlannedPopulation, source: Source) -> Iterator[pa.RecordBatch]:
    assignment = planned.assignment
    shift = assignment.parts.shift
    if shift is None:
        return batches
    # Columns by which rows are divided stay, or the samples would contradict the clients.
    changed = [name for name in source.schema.names if name not in assignment.dividing]
    samples = check_source(source, planned.options.missing).batches(changed)
    change = shift.fit(samples, planned.options.label, assignment.labels)
    return (change(client, batch) for client, batch in enumerate(batches))


def _totals(assignment: Assignment, tests: Tests) -> Totals:
    test_rows = tests[None].num_rows if None in tests else 0
    return Totals(len(assignment.parts), assignment.rows.size, assignment.source_codes.size, test_rows)


def _write_test(folder: Path, name: str | None, test: pa.Table, label: str) -> TestSet:
    rows = np.arange(test.num_rows)
    most = TEST_IMAGES if is_image(test.schema.field(label).type) else TEST_ROWS
    sizes = np.diff(np.append(rows[::most], rows.size))
    return write_test(folder, name, test.schema, gather_batches(test, rows, sizes))
