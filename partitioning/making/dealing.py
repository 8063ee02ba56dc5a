"""First pass over a source: read the columns that the scheme needs and assign rows to clients."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from partitioning.common.checks import Integers, floor_share
from partitioning.common.columns import (
    Label,
    check_rows,
    check_values,
    class_codes,
    decoded,
    distinct,
    is_label,
    labels_of,
)
from partitioning.common.errors import InputError
from partitioning.common.paths import check_path
from partitioning.common.streams import Purpose, generator
from partitioning.making.options import PartitionOptions
from partitioning.making.sites import assign_sites
from partitioning.measures.features import Feature, describe_features
from partitioning.schemes.parts import Parts
from partitioning.schemes.registry import SCHEMES, takes
from partitioning.schemes.tables import read_counts
from partitioning.sources.joined import JoinedSource
from partitioning.sources.source import Source, read_columns
from partitioning.store.own_tests import is_test_row, tests_last


@dataclass(frozen=True)
class Assignment:
    """Rows of a source assigned to clients.

    Args:
        rows: row numbers in the source, client after client, each client's in random order, test rows last [n].
        n_test: rows of each client's own test part [K].
        parts: result of the scheme: each client's rows, report, names, domains, and change of the samples.
        parameters: all parameters of the scheme, in the form of the manifest.
        dividing: columns that name a row's client, domain, site or class, beside the label.
        labels: distinct labels of the source, sorted.
        source_codes: index in `labels` of each source row [N].
        classes: label of each class [C], test sets included.
        codes: stored class of each of `rows` [n].
        features: columns that are counted on every client.
        counted: category of each of `rows`, for each feature [n].
    """

    rows: Integers
    n_test: Integers
    parts: Parts
    parameters: dict[str, Any]
    dividing: list[str]
    labels: list[Label]
    source_codes: Integers
    classes: list[Label]
    codes: Integers
    features: tuple[Feature, ...]
    counted: list[Integers]

    def count(self, codes: Integers, categories: int) -> Integers:
        """Count the categories of `rows` on every client [K, categories]."""
        clients = len(self.parts)
        cells = np.repeat(np.arange(clients) * categories, self.parts.sizes) + codes
        counts: Integers = np.bincount(cells, minlength=clients * categories).reshape(clients, categories)
        return counts


def deal(source: Source, options: PartitionOptions, test_labels: Sequence[pa.ChunkedArray | pa.Array]) -> Assignment:
    """Read the columns that the scheme needs and assign each row to a client; labels of test sets are classes, too.

    Raises:
        InputError: the parameters do not fit the source, a value is missing, or no client has a sample.
    """
    resolved = options.resolve(source)
    dividing = options.dividing_columns(resolved)
    table = read_columns(source, list(dict.fromkeys([options.classes, *options.features, *dividing])))
    check_rows(table, name=source.name)
    check_values(table, name=source.name)
    # The scheme sees only classes that have samples; a test set may add others.
    labels = labels_of(table, options.classes)
    own, classes = distinct([labels]), distinct([labels, *test_labels])
    codes = class_codes(labels, own)
    columns = dict(zip(table.column_names, table.columns, strict=True))
    features, counted = describe_features(columns, options.features, options.buckets)
    if isinstance(resolved.get("table"), str | Path):
        resolved["table"] = read_counts(check_path("table", resolved["table"]), own)
    parts = _apply_scheme(source, options, resolved, table, codes)
    if options.site is not None:
        parts = assign_sites(parts, _values(source, table, options.site), options.site)
    rows = _shuffle(parts, generator(options.seed, Purpose.ORDER).permutation(codes.size))
    if not rows.size:
        raise InputError(f"no client has a sample of {source.name}: choose other parameters of the scheme")
    rows, n_test = _own_tests(table, options.local_test, rows, parts.sizes)
    stored = codes[rows]
    if parts.shift is not None:
        stored = parts.shift.relabel(parts.owners, stored)
    places = {label: place for place, label in enumerate(classes)}
    stored = np.array([places[label] for label in own])[stored]
    counted = [each[rows] for each in counted]
    return Assignment(rows, n_test, parts, resolved, dividing, own, codes, classes, stored, features, counted)


def _own_tests(table: pa.Table, local_test: float | str, rows: Integers, sizes: Integers) -> tuple[Integers, Integers]:
    """Return the rows with each client's own test part last, and the rows of each such part [K]."""
    if not isinstance(local_test, str):
        return rows, floor_share(local_test, sizes)
    is_test = is_test_row(table.column(local_test), local_test)
    if is_test[rows].all():
        raise InputError(
            f"local_test names the column {local_test!r}, which makes all {rows.size} rows test rows: must leave some "
            "for training; correct the column, or give a share such as 0.2"
        )
    return tests_last(rows, sizes, is_test)


def _apply_scheme(
    source: Source, options: PartitionOptions, resolved: Mapping[str, Any], table: pa.Table, codes: Integers
) -> Parts:
    given = dict(resolved)
    for name, column in options.column_parameters(resolved).items():
        given[name] = _values(source, table, column)
    if takes(options.scheme, "clients"):
        given["clients"] = options.clients
    if takes(options.scheme, "features"):
        given |= {"features": {name: table.column(name) for name in options.features}, "buckets": options.buckets}
    return SCHEMES[options.scheme](codes, seed=options.seed, **given)


def _values(source: Source, table: pa.Table, column: str | None) -> npt.ArrayLike:
    # Values of a column; without a column, the name of each row's source.
    if column is None and isinstance(source, JoinedSource):
        return source.domains
    values = table.column(column)
    if not is_label(values.type):
        raise InputError(
            f"column {column!r} of {source.name} is of type {values.type}: name one of whole numbers or strings"
        )
    found = np.asarray(decoded(values))
    # A gap in a file of delimited text is a text without a character, and would be an owner like any other.
    if empty := int(np.count_nonzero(found == "")) if found.dtype.kind in "OU" else 0:
        raise InputError(
            f"column {column!r} of {source.name} has no owner in {empty} rows: must have one in each; fill them in, or "
            "drop the rows"
        )
    return found


def _shuffle(parts: Parts, ranks: Integers) -> Integers:
    # Order each client's rows by rank. One sort of (client, rank) is faster than a million small sorts.
    by_rank = np.empty_like(ranks)
    by_rank[ranks] = np.arange(ranks.size)
    keys = parts.owners * ranks.size + ranks[np.concatenate(parts)]
    keys.sort()
    shuffled: Integers = by_rank[keys % ranks.size]
    return shuffled
