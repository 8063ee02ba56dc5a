"""The first pass over a source: read what the scheme needs to see, and decide which client has which rows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from partitioning.common.checks import Integers
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
from partitioning.making.sites import placed
from partitioning.measures.features import Feature, describe_features
from partitioning.schemes.parts import Parts
from partitioning.schemes.registry import SCHEMES, UNLABELLED, check_clients, parameters, resolve, takes
from partitioning.schemes.tables import read_counts
from partitioning.sources.joined import JoinedSource
from partitioning.sources.source import Source, read_columns


@dataclass(frozen=True)
class Deal:
    """Which client has which rows.

    Args:
        rows: of the source, all clients' one client after the other, each client's in random order.
        parts: what the scheme gave: each client's rows, a report, names, domains, and a change of the samples.
        parameters: all that the scheme takes, as a manifest has them.
        dividing: columns that say which client, domain or site a row is of.
        labels: that the source has, sorted.
        source_codes: which of `labels` each row of the source has [N].
        classes: the label of each class [C], those of test sets included.
        codes: the class of each of `rows`, as it is stored.
        features: columns that are counted on every client.
        counted: for each of them, the category of each of `rows`.
    """

    rows: Integers
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
        """Rows a client [K]."""
        return np.array([part.size for part in self.parts])

    def count(self, codes: Integers, categories: int) -> Integers:
        """Count the categories of `rows` on every client [K, categories]."""
        clients = len(self.parts)
        cells = np.repeat(np.arange(clients) * categories, self.sizes) + codes
        counts: Integers = np.bincount(cells, minlength=clients * categories).reshape(clients, categories)
        return counts


@dataclass(frozen=True)
class Asked:
    """What to deal by: a scheme, its parameters, and the columns that are features.

    Args:
        scheme: a name in `SCHEMES`.
        clients: number of clients K; None for schemes that find it in the data.
        seed: keys every draw.
        label: the column with the label.
        features: columns whose values are counted on every client.
        buckets: into how many quantiles numbers are counted.
        parameters: what the scheme takes besides, as files have them: columns by name.
        site: the column that says at which site a client is; None for none.
    """

    scheme: str
    clients: int | None
    seed: int
    label: str
    features: Sequence[str]
    buckets: int
    parameters: Mapping[str, Any]
    site: str | None = None

    def resolve(self, source: Source) -> dict[str, Any]:
        """Return all parameters, defaults filled in; raises InputError where they are not the scheme's."""
        given = dict(self.parameters)
        if isinstance(source, JoinedSource) and takes(self.scheme, "domain"):
            given.setdefault("domain", None)  # each source is one
        resolved = resolve(self.scheme, given)
        check_clients(self.scheme, self.clients)
        if self.scheme not in UNLABELLED and is_image(source.schema.field(self.label).type):
            raise InputError(
                f"scheme {self.scheme!r} divides by classes, and the label {self.label!r} of {source.name} holds "
                f"images: choose {listing(UNLABELLED)}"
            )
        columns = [name for name in self._columns(resolved).values() if name is not None]
        for name in (*columns, *self._sited, *self.features):
            if name not in source.schema.names:
                known = source.schema.names
                raise InputError(
                    f"{source.name} has no column {name!r}: choose {listing(known)}" + suggestion(name, known)
                )
        return resolved

    def _columns(self, resolved: Mapping[str, Any]) -> dict[str, str | None]:
        return {name: resolved[name] for name, parameter in parameters(self.scheme).items() if parameter.is_column}

    @property
    def _sited(self) -> list[str]:
        return [] if self.site is None else [self.site]

    def deal(self, source: Source, test_labels: Sequence[pa.ChunkedArray | pa.Array]) -> Deal:
        """Read the columns that matter, and deal.

        Args:
            source: the samples [N].
            test_labels: of the test sets, whose labels are classes too.
        """
        resolved = self.resolve(source)
        named = self._columns(resolved)
        dividing = list(dict.fromkeys([*(name for name in named.values() if name is not None), *self._sited]))
        columns = dict.fromkeys([self.label, *self.features, *dividing])
        table = read_columns(source, list(columns))
        check_rows(table, name=source.name)
        check_values(table, name=source.name)
        # The scheme sees the classes that the samples have; a test set may add others.
        labels = labels_of(table, self.label)
        own = distinct([labels])
        classes = distinct([labels, *test_labels])
        codes = class_codes(labels, own)
        features, counted = describe_features(_by_name(table), self.features, self.buckets)
        if isinstance(resolved.get("table"), str):
            resolved["table"] = read_counts(Path(resolved["table"]), own)
        given: dict[str, Any] = {**resolved, **{name: _values(source, table, column) for name, column in named.items()}}
        if takes(self.scheme, "clients"):
            given["clients"] = self.clients
        if takes(self.scheme, "features"):
            given |= {"features": {name: table.column(name) for name in self.features}, "buckets": self.buckets}
        parts = SCHEMES[self.scheme](codes, seed=self.seed, **given)
        if self.site is not None:
            parts = placed(parts, _values(source, table, self.site), self.site)
        rows = _shuffled(parts, generator(self.seed, Purpose.ORDER).permutation(codes.size))
        stored = codes[rows]
        if parts.shift is not None:
            stored = parts.shift.relabel(np.repeat(np.arange(len(parts)), [part.size for part in parts]), stored)
        stored = np.array([classes.index(label) for label in own])[stored]
        counted = [each[rows] for each in counted]
        return Deal(rows, parts, resolved, dividing, own, codes, classes, stored, features, counted)


def _by_name(table: pa.Table) -> dict[str, pa.ChunkedArray]:
    return dict(zip(table.column_names, table.columns, strict=True))


def _values(source: Source, table: pa.Table, column: str | None) -> npt.ArrayLike:
    # A column's values, or the names of the sources where they take its place.
    if column is None and isinstance(source, JoinedSource):
        return source.domains
    values = table.column(column)
    if not is_label(values.type):
        raise InputError(
            f"column {column!r} of {source.name} is of type {values.type}: name one of whole numbers or strings"
        )
    return np.asarray(values.cast(values.type.value_type) if pa.types.is_dictionary(values.type) else values)


def _shuffled(parts: Parts, ranks: Integers) -> Integers:
    # Orders each client's rows by rank, in one sort of (client, rank) because a million small ones are slow.
    by_rank = np.empty_like(ranks)
    by_rank[ranks] = np.arange(ranks.size)
    keys = np.repeat(np.arange(len(parts)), [part.size for part in parts]) * ranks.size + ranks[np.concatenate(parts)]
    keys.sort()
    shuffled: Integers = by_rank[keys % ranks.size]
    return shuffled
