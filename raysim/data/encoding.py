"""Encoding of categories, dates and missing values as numbers, fitted on the training rows of training clients."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from partitioning import Population
from partitioning.common.bounds import check_column_count
from partitioning.common.columns import repeated
from partitioning.store.rewriting import client_runs
from raysim.common.errors import InputError
from raysim.data.columns import ColumnRules, Rule, Statistic, known_values, numbers_of
from raysim.data.decoding import features_of, rewritten
from raysim.data.features import NumberColumns, features

VERSION = 2
"""Part of a cached folder's name; raise it if the same rules would encode to other numbers."""

VALUES_AT_ONCE = 2**20
"""Values of the clients that are read or encoded together."""

VALUES_HELD = 2**27
"""Values of the columns that are fitted together; a column of more is fitted alone."""

Category: TypeAlias = int | float | str | bool

Run: TypeAlias = tuple[Sequence[int], Sequence[int], pa.RecordBatch]
"""Clients, their numbers of training rows, and these rows."""


@dataclass(frozen=True)
class FittedColumn:
    """Column whose encoding is known.

    Args:
        name: name of the column.
        kind: "number", "date" or "category".
        categories: categories in sorted order.
        fill: value in the place of missing ones; None if they are not imputed.
        own: the same of training clients that have their own, by client.
    """

    name: str
    kind: str
    categories: tuple[Category, ...] = ()
    fill: Category | None = None
    own: Mapping[int, Category] = field(default_factory=dict)

    def fill_of(self, client: int | None) -> Category | None:
        """Return the value in the place of a client's missing ones; that of all training clients for test sets."""
        return self.fill if client is None else self.own.get(client, self.fill)


@dataclass(frozen=True)
class Encoding:
    """Encoding of all features of a population.

    Args:
        rules: rules of the experiment file.
        columns: fitted columns, by name; other columns stay unchanged.
    """

    rules: ColumnRules
    columns: Mapping[str, FittedColumn]

    def __call__(self, batch: pa.RecordBatch, owner: str = "") -> pa.RecordBatch:
        """Return a batch with encoded columns in the place of the original ones.

        Args:
            batch: rows with the columns of the population.
            owner: name of the rows' owner, such as "client 3"; test sets have no statistics of their own.
        """
        client = int(owner.removeprefix("client ")) if owner.startswith("client ") else None
        columns: dict[str, pa.Array] = {}
        for name, values in zip(batch.schema.names, batch.columns, strict=True):
            fitted = self.columns.get(name)
            columns |= {name: values} if fitted is None else self._encoded(fitted, values, client)
        kept = {each.name: each for each in batch.schema if each.name not in self.columns}
        fields = [kept.get(name, pa.field(name, array.type)) for name, array in columns.items()]
        return pa.RecordBatch.from_arrays(list(columns.values()), schema=pa.schema(fields, batch.schema.metadata))

    def names_of(self, fitted: FittedColumn) -> list[str]:
        """Return the names of the columns that a column becomes."""
        if fitted.kind != "category" or self.rules.encode == "index":
            return [fitted.name]
        return [f"{fitted.name}_{title}" for title in _titles(fitted.categories)[int(self.rules.drop_first) :]]

    def _encoded(self, fitted: FittedColumn, values: pa.Array, client: int | None) -> dict[str, pa.Array]:
        values, fill = self.rules.cleaned(fitted.name, values), fitted.fill_of(client)
        if fitted.kind != "category":
            numbers = numbers_of(values)
            if fill is not None:
                numbers[np.isnan(numbers)] = fill
            return {fitted.name: pa.array(numbers)}
        codes = _codes(values, fitted.categories)
        if fill is not None:
            codes[known_values(values).is_null().to_numpy(zero_copy_only=False)] = fitted.categories.index(fill)
        names = self.names_of(fitted)
        if self.rules.encode == "index":
            return {fitted.name: pa.array(np.where(codes < 0, len(fitted.categories), codes).astype(np.int32))}
        first = int(self.rules.drop_first)
        return {name: pa.array((codes == place).astype(np.uint8)) for place, name in enumerate(names, first)}

    def to_json(self, population: Population) -> bytes:
        """Return the rules and the fitted values, to be read by a person."""
        encoded: list[str] = []
        for each in features_of(population):
            encoded += self.names_of(self.columns[each.name]) if each.name in self.columns else [each.name]
        rules = {key: getattr(self.rules, key) for key in ("encode", "drop_first", "impute", "na_values")}
        content = {
            **rules,
            "fit": "client" if self.rules.per_client else "global",
            "columns": [self._described(each) for each in self.columns.values()],
            "features": encoded,
        }
        return (json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n").encode()

    def _described(self, fitted: FittedColumn) -> dict[str, Any]:
        found: dict[str, Any] = {"name": fitted.name, "kind": fitted.kind}
        if fitted.kind == "category":
            found["categories"] = list(fitted.categories)
        if fitted.fill is not None:
            found["missing"] = fitted.fill
        if fitted.own:
            found["missing_by_client"] = {str(client): value for client, value in sorted(fitted.own.items())}
        return found


def fit_encoding(population: Population, rules: ColumnRules) -> Encoding:
    """Return the encoding of a population's columns, fitted on the training rows of its training clients.

    Args:
        population: population in the view of its fold.
        rules: rules of the experiment file.

    Raises:
        InputError: a name is no feature, features are no numbers, or a column has no value to fit.
    """
    manifest = population.manifest
    rules.check_names(population.schema, {manifest.label, *manifest.dividing})
    if not isinstance(features(rules.as_numbers(population.schema), manifest.label, manifest.dividing), NumberColumns):
        raise InputError("[data.columns] on arrays or images: is only for columns of numbers; remove it")
    fitted = [
        each.name
        for each in features_of(population)
        if each.name in (*rules.categories, *rules.dates)
        or rules.rule_of(each.name) is not None
        or rules.na_values_of(each.name)
    ]
    columns: dict[str, FittedColumn] = {}
    at_once = max(1, VALUES_HELD // int(population.sizes.sum()))
    for start in range(0, len(fitted), at_once):
        names = fitted[start : start + at_once]
        runs = _training_rows(population, [name for name in names if _needs_rows(name, rules)])
        for name in names:
            columns[name] = (_fit_category if name in rules.categories else _fit_numbers)(runs, name, rules)
    encoding = Encoding(rules, columns)
    names = [name for each in columns.values() for name in encoding.names_of(each)]
    check_column_count("one-hot encoding", len(names))
    if (twice := repeated([*names, *(name for name in population.schema.names if name not in columns)])) is not None:
        raise InputError(
            f"data.columns: the encoded columns have two named {twice!r}: must differ; rename the column, or set "
            'data.columns.encode = "index"'
        )
    return encoding


def encode_population(population: Population, encoding: Encoding) -> Path:
    """Return the folder of the same population with encoded columns; the first call makes it.

    Args:
        population: population with the columns of the encoding.
        encoding: encoding of its columns.
    """
    digest = hashlib.sha256(encoding.to_json(population)).hexdigest()[:16]
    # A client with values of its own is encoded alone.
    are_own = any(each.own for each in encoding.columns.values())
    width = sum(len(encoding.names_of(each)) for each in encoding.columns.values()) + len(population.schema)
    rows = 1 if are_own else max(1, VALUES_AT_ONCE // width)
    return rewritten(population, f"columns-{VERSION}-{digest}", encoding, rows_at_once=rows)


def _fit_category(runs: Sequence[Run], name: str, rules: ColumnRules) -> FittedColumn:
    counts: Counter[Category] = Counter()
    own: dict[int, Category] = {}
    rule = rules.rule_of(name)
    for client, values in _train_values(runs, name, rules):
        found: Counter[Category] = Counter()
        known = known_values(values).drop_null()
        for each in pc.value_counts(known).to_pylist():
            found[each["values"]] = each["counts"]
        counts.update(found)
        if rules.per_client and rule == "most_frequent" and found:
            own[client] = _most_frequent(found)
    if not counts:
        raise _without_values(name)
    _check_finite(name, np.array([each for each in counts if isinstance(each, float)]))
    fill = _most_frequent(counts) if rule == "most_frequent" else _category(rule, next(iter(counts)), name, known.type)
    every = {*counts} if fill is None else {*counts, fill}
    return FittedColumn(name, "category", tuple(sorted(every)), fill, own)


def _category(rule: Rule | None, like: Category, name: str, kind: pa.DataType) -> Category | None:
    """Return the category that a rule names, of the type of the others; raise InputError if it has another type."""
    if rule is None or (isinstance(rule, str) and isinstance(like, str)):
        return rule
    if isinstance(rule, str) or isinstance(like, str) or not _fits(rule, like, kind):
        raise InputError(
            f"data.columns.impute.{name} = {rule!r}: must be a category like {like!r}, of the same type, {kind}; "
            "correct it"
        )
    return type(like)(rule)


def _fits(rule: float, like: Category, kind: pa.DataType) -> bool:
    """Return whether a number is of the type of a category, and within the range of the column's type."""
    try:
        pa.array([type(like)(rule)], kind)
    except (ValueError, OverflowError):
        return False
    return type(like)(rule) == rule


def _fit_numbers(runs: Sequence[Run], name: str, rules: ColumnRules) -> FittedColumn:
    kind, rule = "date" if name in rules.dates else "number", rules.rule_of(name)
    if rule is None:
        return FittedColumn(name, kind)
    if not isinstance(rule, str):
        return FittedColumn(name, kind, fill=float(rule))
    parts: list[np.ndarray] = []
    own: dict[int, Category] = {}
    for client, values in _train_values(runs, name, rules):
        numbers = numbers_of(values)
        parts.append(numbers[~np.isnan(numbers)])
        if rules.per_client and parts[-1].size:
            own[client] = _statistic(rule, parts[-1])
    whole = np.concatenate(parts)
    if not whole.size:
        raise _without_values(name)
    _check_finite(name, whole)
    return FittedColumn(name, kind, fill=_statistic(rule, whole), own=own)


def _needs_rows(name: str, rules: ColumnRules) -> bool:
    return name in rules.categories or isinstance(rules.rule_of(name), str)


def _training_rows(population: Population, names: Sequence[str]) -> list[Run]:
    """Return columns of the training rows of all training clients, in order of the clients, each read once."""
    clients = population.train_clients
    sizes = (population.sizes - population.test_sizes)[clients]
    found: list[Run] = []
    for first, end in client_runs(sizes, max(1, VALUES_AT_ONCE // len(names))) if names else ():
        run = (clients[first:end].tolist(), sizes[first:end].tolist())
        batches = [population.batch(client).select(names).slice(0, size) for client, size in zip(*run, strict=True)]
        found.append((*run, pa.concat_batches(batches)))
    return found


def _train_values(runs: Sequence[Run], name: str, rules: ColumnRules) -> Iterator[tuple[int, pa.Array]]:
    """Yield a column of the training rows: of each client for statistics of its own, else of each run of clients."""
    for clients, sizes, batch in runs:
        values, start = rules.cleaned(name, batch.column(name)), 0
        if not rules.per_client:
            yield clients[0], values
            continue
        for client, size in zip(clients, sizes, strict=True):
            yield client, values.slice(start, size)
            start += size


def _statistic(name: Statistic | str, values: np.ndarray) -> float:
    if name == "mean":
        return float(values.mean())
    if name == "median":
        return float(np.median(values))
    distinct, counts = np.unique(values, return_counts=True)
    return float(distinct[np.argmax(counts)])


def _most_frequent(counts: Counter[Category]) -> Category:
    """Return the most frequent category, the first in sorted order among equals."""
    return max(sorted(counts), key=lambda each: counts[each])


def _codes(values: pa.Array, categories: tuple[Category, ...]) -> np.ndarray:
    """Return each value's place among the categories, int64; -1 for a missing or unseen one."""
    known = known_values(values)
    codes = pc.fill_null(pc.index_in(known, value_set=pa.array(categories, known.type)), -1)
    return np.array(codes.to_numpy(zero_copy_only=False), np.int64)


def _titles(categories: Sequence[Category]) -> list[str]:
    """Return the categories as texts; numbers have six digits, or all of them if six do not tell them apart."""
    short = [f"{each:g}" if isinstance(each, float) else str(each) for each in categories]
    return short if repeated(short) is None else [str(each) for each in categories]


def _check_finite(name: str, values: np.ndarray) -> None:
    if not np.isfinite(values).all():
        raise InputError(
            f"column {name!r} has infinite values in the training rows of the training clients: must be finite; "
            f"correct them, or leave it out by data.without = [{name!r}]"
        )


def _without_values(name: str) -> InputError:
    return InputError(
        f"column {name!r} has no value in the training rows of the training clients: must have one to fit; leave it "
        f"out by data.without = [{name!r}]"
    )
