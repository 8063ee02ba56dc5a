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
    distinct,
    is_image,
    is_label,
    labels_of,
)
from partitioning.common.errors import InputError, listing, suggestion
from partitioning.common.streams import Purpose, generator
from partitioning.making.sites import assign_sites
from partitioning.measures.features import Feature, describe_features
from partitioning.schemes.parts import Parts
from partitioning.schemes.registry import SCHEMES, UNLABELLED, check_clients, parameters, resolve, takes
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

    @property
    def sizes(self) -> Integers:
        """Rows per client [K]."""
        return np.array([part.size for part in self.parts])

    def count(self, codes: Integers, categories: int) -> Integers:
        """Count the categories of `rows` on every client [K, categories]."""
        clients = len(self.parts)
        cells = np.repeat(np.arange(clients) * categories, self.sizes) + codes
        counts: Integers = np.bincount(cells, minlength=clients * categories).reshape(clients, categories)
        return counts


@dataclass(frozen=True)
class DealOptions:
    """Scheme, its parameters, and the columns to count.

    Args:
        scheme: name in `SCHEMES`.
        clients: number of clients K; None if the scheme finds the clients in the data.
        seed: key of every draw.
        label: label column.
        features: columns to count on every client.
        buckets: number of quantile buckets of a numeric feature.
        parameters: further parameters of the scheme; column parameters by column name.
        site: column that names each client's site; None without sites.
        by: column whose values are the classes of the scheme and of the counts; None for the label column.
        local_test: share of each client's rows that is its own test part, or the column that names test rows.
    """

    scheme: str
    clients: int | None
    seed: int
    label: str
    features: Sequence[str]
    buckets: int
    parameters: Mapping[str, Any]
    site: str | None = None
    by: str | None = None
    local_test: float | str = 0.0

    @property
    def classes(self) -> str:
        """Column of the classes."""
        return self.by or self.label

    def resolve(self, source: Source) -> dict[str, Any]:
        """Return all parameters of the scheme, defaults included; raise InputError if they do not fit the source."""
        given = dict(self.parameters)
        if isinstance(source, JoinedSource) and takes(self.scheme, "domain"):
            given.setdefault("domain", None)  # each source is a domain
        resolved = resolve(self.scheme, given)
        check_clients(self.scheme, self.clients)
        self._check_classes(source)
        known = source.schema.names
        for name in (*self.dividing_columns(resolved), *self.features):
            if name not in known:
                raise InputError(
                    f"{source.name} has no column {name!r}: choose {listing(known)}" + suggestion(name, known)
                )
        return resolved

    def _check_classes(self, source: Source) -> None:
        """Raise InputError if the scheme divides by classes and there are none, or `by` is not needed for them."""
        kind, names = source.schema.field(self.label).type, source.schema.names
        if self.by is not None:
            if self.by not in names:
                near = suggestion(self.by, names)
                raise InputError(f"{source.name} has no column by = {self.by!r}: choose {listing(names)}{near}")
            if is_label(kind):
                raise InputError(
                    f"by = {self.by!r} with classes in the label column {self.label!r}: is only for labels that are "
                    "numbers or images; leave it out, or name it as the label"
                )
            if not is_label(source.schema.field(self.by).type) or self.scheme == "concept":
                raise InputError(
                    f"by = {self.by!r} with scheme {self.scheme!r}: must be a column of whole numbers or strings, and "
                    "not with 'concept', which changes labels; name another column"
                )
        elif self.scheme not in UNLABELLED and not is_label(kind):
            what = "images" if is_image(kind) else "numbers"
            raise InputError(
                f"scheme {self.scheme!r} divides by classes, and the label {self.label!r} of {source.name} holds "
                f"{what}: name a column of classes by `by`, or choose {listing(UNLABELLED)}"
            )

    def column_parameters(self, resolved: Mapping[str, Any]) -> dict[str, str | None]:
        """Return the column of each parameter that holds one value per sample."""
        return {name: resolved[name] for name, parameter in parameters(self.scheme).items() if parameter.is_column}

    def dividing_columns(self, resolved: Mapping[str, Any]) -> list[str]:
        """Return the columns that name a row's client, domain, site, class or split, and are no features."""
        split = self.local_test if isinstance(self.local_test, str) else None
        names = (*self.column_parameters(resolved).values(), self.site, self.by, split)
        return list(dict.fromkeys(name for name in names if name is not None))


def deal(source: Source, options: DealOptions, test_labels: Sequence[pa.ChunkedArray | pa.Array]) -> Assignment:
    """Read the columns that the scheme needs and assign each row to a client.

    Args:
        source: samples [N].
        options: scheme and its parameters.
        test_labels: labels of the test sets, which are classes as well.

    Raises:
        InputError: the parameters do not fit the source, or a value is missing.
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
    if isinstance(resolved.get("table"), str):
        resolved["table"] = read_counts(Path(resolved["table"]), own)
    parts = _apply_scheme(source, options, resolved, table, codes)
    if options.site is not None:
        parts = assign_sites(parts, _values(source, table, options.site), options.site)
    rows = _shuffle(parts, generator(options.seed, Purpose.ORDER).permutation(codes.size))
    rows, n_test = _own_tests(table, options.local_test, rows, np.array([part.size for part in parts]))
    stored = codes[rows]
    if parts.shift is not None:
        stored = parts.shift.relabel(np.repeat(np.arange(len(parts)), [part.size for part in parts]), stored)
    stored = np.array([classes.index(label) for label in own])[stored]
    counted = [each[rows] for each in counted]
    return Assignment(rows, n_test, parts, resolved, dividing, own, codes, classes, stored, features, counted)


def _own_tests(table: pa.Table, local_test: float | str, rows: Integers, sizes: Integers) -> tuple[Integers, Integers]:
    """Return the rows with each client's own test part last, and the rows of each such part [K]."""
    if not isinstance(local_test, str):
        return rows, floor_share(local_test, sizes)
    return tests_last(rows, sizes, is_test_row(table.column(local_test), local_test))


def _apply_scheme(
    source: Source, options: DealOptions, resolved: Mapping[str, Any], table: pa.Table, codes: Integers
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
    return np.asarray(values.cast(values.type.value_type) if pa.types.is_dictionary(values.type) else values)


def _shuffle(parts: Parts, ranks: Integers) -> Integers:
    # Order each client's rows by rank. One sort of (client, rank) is faster than a million small sorts.
    by_rank = np.empty_like(ranks)
    by_rank[ranks] = np.arange(ranks.size)
    keys = np.repeat(np.arange(len(parts)), [part.size for part in parts]) * ranks.size + ranks[np.concatenate(parts)]
    keys.sort()
    shuffled: Integers = by_rank[keys % ranks.size]
    return shuffled
