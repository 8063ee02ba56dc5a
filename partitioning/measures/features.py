"""Features: columns that are counted on every client, by category or by quantile bucket."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from partitioning.common.casting import is_number
from partitioning.common.checks import Floats, Integers, whole
from partitioning.common.columns import Label, class_codes, decoded, distinct, value_type
from partitioning.common.errors import InputError, excerpt, suggestion

MOST_CATEGORIES = 20
"""Largest number of distinct whole numbers that count as categories; more are bucketed."""

MOST_BUCKETS = 10_000
"""Largest number of buckets of a numeric feature."""

MOST_WORDS = 1000
"""Largest number of distinct strings of a feature."""


@dataclass(frozen=True)
class Feature:
    """A column counted by category, or by buckets between ascending edges.

    Bucket b holds the values from edge b - 1 up to, but not including, edge b; the first and last bucket are open.
    """

    name: str
    categories: list[Label] | None
    edges: list[float] | None

    @property
    def size(self) -> int:
        """Number of categories or buckets d."""
        return len(self.categories) if self.categories is not None else len(self.edges or ()) + 1

    @property
    def titles(self) -> list[str]:
        """Name of each category or bucket [d]."""
        if self.categories is not None:
            return [str(category) for category in self.categories]
        edges = _in_words(self.edges or [])
        if not edges:
            return ["all"]
        between = [f"{low} to {high}" for low, high in itertools.pairwise(edges)]
        return [f"below {edges[0]}", *between, f"from {edges[-1]}"]

    def codes(self, column: pa.ChunkedArray | pa.Array) -> Integers:
        """Return the category or bucket of each value [N]; -1 for a value outside the categories."""
        if self.categories is not None:
            return class_codes(column, self.categories)
        return np.searchsorted(self.edges or [], _floats(column), side="right").astype(np.int64)


def describe_features(
    columns: Mapping[str, pa.ChunkedArray], names: Sequence[str], buckets: int = 4
) -> tuple[tuple[Feature, ...], list[Integers]]:
    """Describe columns as features, and return the code of every value.

    Strings, booleans, and whole numbers with at most `MOST_CATEGORIES` distinct values are categories, in sorted order.
    Other numbers are bucketed: the inner edges are the quantiles 1/b, ..., (b - 1)/b, each a value of the column. Equal
    edges are joined, hence no bucket is empty and a skewed column has fewer buckets.

    Args:
        columns: columns by name, each [N] without missing values.
        names: names of the columns to describe.
        buckets: number of buckets b, 2 or more.

    Returns:
        The features, and the codes of each [N].

    Raises:
        InputError: a name is unknown or repeated; a column holds neither numbers nor strings, or NaN, infinity, or more
            than `MOST_WORDS` distinct strings.
    """
    buckets = whole("buckets", buckets, least=2)
    if buckets > MOST_BUCKETS:
        raise InputError(f"buckets is {buckets}: give {MOST_BUCKETS} or fewer")
    for name in names:
        if name not in columns:
            raise InputError(
                f"features name {name!r}, which is no column: choose {excerpt(columns)}" + suggestion(name, columns)
            )
        if list(names).count(name) > 1:
            raise InputError(f"features name {name!r} more than once: name each column once")
    features = tuple(_describe(name, columns[name], buckets) for name in names)
    return features, [feature.codes(columns[feature.name]) for feature in features]


def split_counts(counts: Integers, features: Sequence[Feature]) -> dict[str, Integers]:
    """Split the counts of all features, side by side [K, D], by feature [K, d]."""
    bounds = np.cumsum([feature.size for feature in features])[:-1]
    parts = np.split(counts, bounds, axis=1) if features else []
    return {feature.name: part for feature, part in zip(features, parts, strict=True)}


def _describe(name: str, column: pa.ChunkedArray, buckets: int) -> Feature:
    kind = value_type(column.type)
    words = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    if not (words or pa.types.is_boolean(kind) or is_number(kind)):
        raise InputError(f"feature {name!r} is of type {column.type}: name columns of numbers, booleans or strings")
    if pa.types.is_floating(kind):
        return Feature(name, None, _edges(name, column, buckets))
    found = distinct([column])
    if words and len(found) > MOST_WORDS:
        raise InputError(
            f"feature {name!r} has {len(found)} distinct strings: name columns of at most {MOST_WORDS}, or group them"
        )
    if pa.types.is_integer(kind) and len(found) > MOST_CATEGORIES:
        return Feature(name, None, _edges(name, column, buckets))
    return Feature(name, found, None)


def _in_words(edges: Sequence[float]) -> list[str]:
    # From the first number of digits on that tells all edges apart; 17 tell all floats apart.
    for digits in range(4, 18):
        words = [f"{edge:.{digits}g}" for edge in edges]
        if len(set(words)) >= len(set(edges)):
            break
    return words


def _edges(name: str, column: pa.ChunkedArray, buckets: int) -> list[float]:
    values = _floats(column)
    if not np.isfinite(values).all():
        raise InputError(f"feature {name!r} has values that are NaN or infinite: fill them or drop those rows")
    edges = np.unique(np.quantile(values, np.arange(1, buckets) / buckets, method="inverted_cdf"))
    return [float(edge) for edge in edges if edge > values.min()]  # no value lies below the smallest


def _floats(column: pa.ChunkedArray | pa.Array) -> Floats:
    values = decoded(column).cast(pa.float64(), safe=False)
    return np.asarray(values.to_numpy(), dtype=np.float64)
