"""Columns of a table that are no plain numbers: categories, dates and missing values, and the rules for them."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from partitioning.common.columns import is_label
from raysim.common.errors import InputError, unknown
from raysim.data.features import is_number

Statistic = Literal["mean", "median", "most_frequent"]
"""Statistics that can stand for missing values."""

MICROSECONDS_PER_DAY = 86_400_000_000

FEW = 20
"""Number of different texts that may be categories in a table of any size."""


@dataclass(frozen=True)
class ColumnRules:
    """Preparation of columns of a table, `[data.columns]`.

    Args:
        categories: columns of categories.
        encode: "onehot" for a column of 0 and 1 for each category, "index" for the category's place in sorted order.
        drop_first: whether one-hot columns leave out the first category.
        dates: columns of dates, which become days since 1970-01-01.
        impute: value of missing numbers and dates: a statistic of the training rows, or a number; None refuses them.
            Categories take their most frequent one.
        per_client: whether each training client has statistics of its own.
    """

    categories: tuple[str, ...] = ()
    encode: Literal["onehot", "index"] = "onehot"
    drop_first: bool = False
    dates: tuple[str, ...] = ()
    impute: Statistic | float | None = None
    per_client: bool = False

    @property
    def needs_statistics(self) -> bool:
        """Whether a value of the training rows stands for missing ones."""
        return isinstance(self.impute, str) or (self.impute is not None and bool(self.categories))

    def as_numbers(self, schema: pa.Schema) -> pa.Schema:
        """Return a schema with numbers in the place of its categories and dates."""
        encoded = {*self.categories, *self.dates}
        return pa.schema([pa.field(each.name, pa.float64()) if each.name in encoded else each for each in schema])

    def missing_allowed(self, schema: pa.Schema, besides: Collection[str]) -> list[str]:
        """Return the columns that may have missing values: all numbers, categories and dates, if these are imputed.

        Args:
            schema: columns of the table.
            besides: the label, and columns that are no features.
        """
        if self.impute is None:
            return []
        numbers = self.as_numbers(schema)
        return [each.name for each in numbers if is_number(each.type) and each.name not in besides]

    def check_names(self, schema: pa.Schema, besides: Collection[str]) -> None:
        """Refuse names that are no features, or that stand in both lists."""
        names = [name for name in schema.names if name not in besides]
        for key, listed in (("categories", self.categories), ("dates", self.dates)):
            for name in listed:
                if name not in names:
                    raise unknown(f"column {name!r} of data.columns.{key}", name, names)
        if both := sorted({*self.categories} & {*self.dates}):
            raise InputError(
                f"data.columns.dates has {both[0]!r}, which data.columns.categories has, too: must be one of them; "
                "remove it from one"
            )


PLAIN = ColumnRules()
"""Rules of a table without `[data.columns]`."""


def check_features(
    table: pa.Table, label: str, besides: Collection[str], where: str, rules: ColumnRules = PLAIN
) -> None:
    """Refuse columns that are no features yet, all at once, with the keys that make them features.

    Arrays and images are left to `features`.

    Args:
        table: rows with all their columns.
        label: label column.
        besides: columns that are no features.
        where: name of the table, for the error message.
        rules: rules of the experiment file.

    Raises:
        InputError: a column is text, a date or has missing values, and no key says what becomes of it.
    """
    besides = {label, *besides}
    rules.check_names(table.schema, besides)
    faults = [_fault(table, each, rules) for each in table.schema if each.name not in besides]
    found = [fault for fault in faults if fault is not None]
    if not found:
        return
    others = any(not is_scalar(each.type) for each in table.schema if each.name not in besides)
    mended = [] if others else _keys(found)  # the keys are not for columns beside arrays or images
    ways = [f"set {', '.join(mended)} in [data.columns]"] if mended else []
    ways.append(f"leave columns out by data.without = {_listed([fault.column for fault in found])}")
    if texts := [fault.column for fault in found if fault.is_text]:
        ways.append(f"name {texts[0]!r} in [data.text] if it is text to read")
    raise InputError(
        f"{where}: {', '.join(fault.text for fault in found)}: must be numbers without missing values; "
        f"{', or '.join(ways)}"
    )


@dataclass(frozen=True)
class _Fault:
    """Column that is no feature.

    Args:
        column: name of the column.
        text: the fault in words.
        key: key of `[data.columns]` that mends it; "" for none.
        is_text: whether it holds text.
    """

    column: str
    text: str
    key: str = ""
    is_text: bool = False


def _keys(faults: Sequence[_Fault]) -> list[str]:
    """Return the keys of `[data.columns]` that mend faults, with their values."""
    columns = {key: [fault.column for fault in faults if fault.key == key] for key in ("categories", "dates", "impute")}
    values = {"categories": _listed(columns["categories"]), "dates": _listed(columns["dates"]), "impute": '"median"'}
    return [f"{key} = {values[key]}" for key, names in columns.items() if names]


def _listed(names: Sequence[str]) -> str:
    return json.dumps(names, ensure_ascii=False)


def _fault(table: pa.Table, column: pa.Field, rules: ColumnRules) -> _Fault | None:
    name, kind, values = column.name, column.type, table[column.name]
    if name in rules.dates or name in rules.categories:
        wrong = wrong_date(values) if name in rules.dates else _wrong_category(kind)
        if wrong:
            return _Fault(name, f"{name!r} {wrong}")
    elif pa.types.is_null(kind):
        return _Fault(name, f"{name!r} is empty")
    elif pa.types.is_temporal(kind):
        return _Fault(name, f"{name!r} is {kind}", "dates" if is_date(kind) else "")
    elif is_label(kind) and not is_number(kind):
        shown = f"a dictionary of {kind.value_type}" if pa.types.is_dictionary(kind) else kind
        key = "dates" if not wrong_date(values) else "categories" if repeats(values) else ""
        return _Fault(name, f"{name!r} is {shown}", key, _is_text(kind))
    elif not is_number(kind):
        return None
    rows = missing_rows(values)
    return _Fault(name, f"{name!r} has nulls ({rows} rows)", "impute") if rows and rules.impute is None else None


def is_scalar(kind: pa.DataType) -> bool:
    """Return whether a column has one plain value a row: a number, a text, a date, or nothing."""
    return bool(is_number(kind) or is_label(kind) or pa.types.is_temporal(kind) or pa.types.is_null(kind))


def is_date(kind: pa.DataType) -> bool:
    """Return whether a type is one of Arrow's dates, with or without a time."""
    return bool(pa.types.is_date(kind) or pa.types.is_timestamp(kind))


def _wrong_category(kind: pa.DataType) -> str:
    return "" if is_label(kind) or pa.types.is_floating(kind) else f"is {kind}, whose values are no categories"


def wrong_date(values: pa.ChunkedArray) -> str:
    """Return the reason why values are no dates; "" if they are."""
    if is_date(values.type):
        return ""
    if not _is_text(values.type):
        return f"is {values.type}, whose values are no dates"
    texts = _texts(values)
    try:
        pc.cast(texts, pa.timestamp("us"))
    except pa.ArrowException:
        first = next((text for text in texts.to_pylist() if text is not None and not _is_date(text)), "")
        return f"has {first[:40]!r}, which is no date like 2020-12-31"
    return ""


def _is_date(text: str) -> bool:
    try:
        pc.cast(pa.array([text]), pa.timestamp("us"))
    except pa.ArrowException:
        return False
    return True


def repeats(values: pa.ChunkedArray | pa.Array) -> bool:
    """Return whether texts repeat as categories do, unlike names or notes: at most half of the rows differ."""
    return bool(pc.count_distinct(values.cast(_value_type(values.type))).as_py() <= max(FEW, len(values) // 2))


def _is_text(kind: pa.DataType) -> bool:
    return is_label(kind) and not is_number(_value_type(kind))


def _value_type(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _texts(values: pa.ChunkedArray | pa.Array) -> pa.ChunkedArray | pa.Array:
    """Return texts without a dictionary, and null for an empty one."""
    texts = values.cast(pa.large_string())
    return pc.if_else(pc.equal(texts, ""), pa.scalar(None, texts.type), texts)


def missing_rows(values: pa.ChunkedArray | pa.Array) -> int:
    """Return the number of missing values: nulls, NaN, and texts without a character."""
    if pa.types.is_floating(values.type):
        return int(values.null_count + (pc.sum(pc.is_nan(values)).as_py() or 0))
    return int((_texts(values) if _is_text(values.type) else values).null_count)


def known_values(values: pa.ChunkedArray | pa.Array) -> pa.ChunkedArray | pa.Array:
    """Return a column of categories without dictionary, with null for each missing value."""
    kind = _value_type(values.type)
    if pa.types.is_floating(kind):
        # Arrow looks values up by their bits: -0.0 becomes 0.0, which is the same category.
        return pc.add(pc.if_else(pc.is_nan(values), pa.scalar(None, kind), values), pa.scalar(0.0, kind))
    return values.cast(kind) if is_number(kind) else _texts(values)


def numbers_of(values: pa.Array) -> np.ndarray:
    """Return a column of numbers or dates as float64; dates in days since 1970-01-01, NaN for missing values."""
    if _is_text(values.type):
        values = pc.cast(_texts(values), pa.timestamp("us"))
    if is_date(values.type):
        zone = getattr(values.type, "tz", None)
        moments = values.cast(pa.timestamp("us", zone), safe=False).cast(pa.int64()).cast(pa.float64(), safe=False)
        return np.asarray(moments.to_numpy(zero_copy_only=False) / MICROSECONDS_PER_DAY)
    numbers = values.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    return np.array(numbers)  # a copy: Arrow's memory is read-only


def fields_of(schema: pa.Schema, besides: Collection[str]) -> Iterator[pa.Field]:
    """Yield the features of a schema."""
    yield from (each for each in schema if each.name not in besides)
