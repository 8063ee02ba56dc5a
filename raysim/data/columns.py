"""Columns of a table that are no plain numbers: categories, dates and missing values, and the rules for them."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from partitioning.common.columns import is_label, value_type
from raysim.common.errors import InputError, unknown
from raysim.data.features import is_number

Statistic = Literal["mean", "median", "most_frequent"]
"""Statistics that can stand for missing values."""

Rule: TypeAlias = Statistic | float | str
"""Rule for the missing values of a column: a statistic, a number, or the name of a category."""

OTHERS = "*"
"""Name that stands for all columns without a rule of their own."""

MICROSECONDS_PER_DAY = 86_400_000_000

STATISTICS: tuple[str, ...] = get_args(Statistic)

OFFSET = r"\d\d:\d\d.*(Z|[-+]\d\d(:?\d\d)?)$"
"""Texts of times with an offset from UTC."""

NUMBER = r"^\s*[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?\s*$"
"""Texts of numbers."""

MOST_SIGNS = 3
"""Most different texts in a column of numbers that may stand for missing values."""

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
            Categories take their most frequent one. Or a rule for each column by its name, for a category its most
            frequent one or a category; "*" is for the other columns.
        per_client: whether each training client has statistics of its own.
        na_values: values that stand for missing ones in all columns, or by column. Texts of the other values of a
            column become numbers, unless it has categories or dates.
    """

    categories: tuple[str, ...] = ()
    encode: Literal["onehot", "index"] = "onehot"
    drop_first: bool = False
    dates: tuple[str, ...] = ()
    impute: Statistic | float | Mapping[str, Rule] | None = None
    per_client: bool = False
    na_values: Sequence[str | float] | Mapping[str, Sequence[str | float]] = ()

    @property
    def _named(self) -> Mapping[str, Rule]:
        return self.impute if isinstance(self.impute, Mapping) else {}

    @property
    def needs_statistics(self) -> bool:
        """Whether a value of the training rows stands for missing ones."""
        rules = [self.rule_of(name) for name in (*self.categories, *self._named)]
        return self.impute in STATISTICS or any(rule in STATISTICS for rule in rules)

    def rule_of(self, column: str) -> Rule | None:
        """Return the rule for a column's missing values; None if they are refused."""
        named = self.impute if isinstance(self.impute, Mapping) else {OTHERS: self.impute}
        if column in named:
            return named[column]
        other = named.get(OTHERS)
        return other if other is None or column not in self.categories else "most_frequent"

    def na_values_of(self, column: str) -> Sequence[str | float]:
        """Return the values of a column that stand for missing ones."""
        return self.na_values.get(column, ()) if isinstance(self.na_values, Mapping) else self.na_values

    def cleaned(self, column: str, values: pa.ChunkedArray | pa.Array) -> pa.ChunkedArray | pa.Array:
        """Return a column's values with null for those that stand for missing ones, and with numbers for their texts.

        Raises:
            InputError: the column has `na_values`, no categories and no dates, and a text that is no number.
        """
        if not (found := self.na_values_of(column)):
            return values
        if _is_text(values.type):
            texts = _texts(values)
            away = pa.array([_shown(each) for each in found], texts.type)
            values = _without(texts, pc.is_in(texts, value_set=away))
            if column in (*self.categories, *self.dates):
                return values
            values = _as_numbers(values, column)
        if not is_number(values.type):
            return values
        numbers = [number for each in found if (number := _number(each)) is not None]
        return _without(values, pc.is_in(values.cast(pa.float64(), safe=False), pa.array(numbers, pa.float64())))

    def as_numbers(self, schema: pa.Schema) -> pa.Schema:
        """Return a schema with numbers in the place of its categories, dates and texts of numbers."""
        encoded = {*self.categories, *self.dates}
        encoded |= {each.name for each in schema if _is_text(each.type) and self.na_values_of(each.name)}
        return pa.schema([pa.field(each.name, pa.float64()) if each.name in encoded else each for each in schema])

    def missing_allowed(self, schema: pa.Schema, besides: Collection[str]) -> list[str]:
        """Return the columns that may have missing values: the numbers, categories and dates with a rule for them.

        Args:
            schema: columns of the table.
            besides: the label, and columns that are no features.
        """
        numbers = [each.name for each in self.as_numbers(schema) if is_number(each.type) and each.name not in besides]
        return [name for name in numbers if self.rule_of(name) is not None]

    def check_names(self, schema: pa.Schema, besides: Collection[str]) -> None:
        """Refuse names that are no features, or that stand in both lists, and rules that do not fit a column."""
        names = [name for name in schema.names if name not in besides]
        every = {
            "categories": self.categories,
            "dates": self.dates,
            "impute": [name for name in self._named if name != OTHERS],
            "na_values": list(self.na_values) if isinstance(self.na_values, Mapping) else [],
        }
        for key, listed in every.items():
            for name in listed:
                if name not in names:
                    raise unknown(f"column {name!r} of data.columns.{key}", name, names)
        if both := sorted({*self.categories} & {*self.dates}):
            raise InputError(
                f"data.columns.dates has {both[0]!r}, which data.columns.categories has, too: must be one of them; "
                "remove it from one"
            )
        for name, rule in self._named.items():
            self._check_rule(name, rule)

    def _check_rule(self, name: str, rule: Rule) -> None:
        allowed = 'a number, or one of "mean", "median" and "most_frequent"'
        wrong = isinstance(rule, str) and rule not in STATISTICS
        if name in self.categories:
            allowed, wrong = '"most_frequent" or a category', rule in ("mean", "median")
        if wrong:
            raise InputError(f"data.columns.impute.{name} = {rule!r}: must be {allowed}; correct it")


PLAIN = ColumnRules()
"""Rules of a table without `[data.columns]`."""


def check_features(
    table: pa.Table, label: str, besides: Collection[str], where: str, rules: ColumnRules = PLAIN, is_part: bool = False
) -> None:
    """Refuse columns that are no features yet, all at once, with the keys that make them features.

    Arrays and images are left to `features`.

    Args:
        table: rows with all their columns.
        label: label column.
        besides: columns that are no features.
        where: name of the table, for the error message.
        rules: rules of the experiment file.
        is_part: whether other tables may have values of a column without any here.

    Raises:
        InputError: a column is text, a date or has missing values, and no key says what becomes of it.
    """
    besides = {label, *besides}
    rules.check_names(table.schema, besides)
    faults = [_fault(table, each, rules, is_part) for each in table.schema if each.name not in besides]
    found = [fault for fault in faults if fault is not None]
    if not found:
        return
    others = any(not is_scalar(each.type) for each in table.schema if each.name not in besides)
    mended = [] if others else _keys(found)  # the keys are not for columns beside arrays or images
    rest = [fault.column for fault in found if not fault.key]
    also = f" and data.without = {_listed(rest)}" if rest else ""
    ways = [f"set {', '.join(mended)} in [data.columns]{also}"] if mended else []
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
        signs: texts among its numbers.
    """

    column: str
    text: str
    key: str = ""
    is_text: bool = False
    signs: Sequence[str] = ()


def _keys(faults: Sequence[_Fault]) -> list[str]:
    """Return the keys of `[data.columns]` that mend faults, with their values."""
    named = {key: [fault.column for fault in faults if fault.key == key] for key in ("categories", "dates")}
    signs = list(dict.fromkeys(sign for fault in faults for sign in fault.signs))
    lists = {**named, "na_values": signs}
    missing = ['impute = "median"'] if any(fault.key in ("impute", "na_values") for fault in faults) else []
    return [*(f"{key} = {_listed(each)}" for key, each in lists.items() if each), *missing]


def _listed(names: Sequence[str]) -> str:
    return json.dumps(names, ensure_ascii=False)


def _fault(table: pa.Table, column: pa.Field, rules: ColumnRules, is_part: bool) -> _Fault | None:
    name, values = column.name, table[column.name]
    with suppress(InputError):  # The column is a text then, and the fault says what can be done about it.
        values = rules.cleaned(name, values)
    kind, rows, rule = values.type, missing_rows(values), rules.rule_of(name)
    if pa.types.is_null(kind) or (rule is None and not is_part and 0 < rows == len(values)):
        return _Fault(name, f"{name!r} is empty")
    if name in rules.dates or name in rules.categories:
        wrong = wrong_date(values) if name in rules.dates else _wrong_category(kind)
        if wrong:
            return _Fault(name, f"{name!r} {wrong}")
    elif pa.types.is_temporal(kind):
        return _Fault(name, f"{name!r} is {kind}", "dates" if is_date(kind) else "")
    elif is_label(kind) and not is_number(kind):
        shown = f"a dictionary of {kind.value_type}" if pa.types.is_dictionary(kind) else kind
        if odd := signs_of_missing(values):
            return _Fault(name, f"{name!r} is {shown} with {', '.join(map(repr, odd))}", "na_values", signs=odd)
        key = "dates" if not wrong_date(values) else "categories" if repeats(values) else ""
        return _Fault(name, f"{name!r} is {shown}", key, _is_text(kind))
    elif not is_number(kind):
        return None
    return _Fault(name, f"{name!r} has nulls ({rows} rows)", "impute") if rows and rule is None else None


def signs_of_missing(values: pa.ChunkedArray | pa.Array) -> list[str]:
    """Return the few texts of a column that are no numbers if most others are; they may stand for missing values."""
    texts = _texts(values).drop_null()
    odd = texts.filter(pc.invert(pc.match_substring_regex(texts, NUMBER)))
    found = sorted(pc.unique(odd).to_pylist()) if 0 < 2 * len(odd) <= len(texts) else []
    return found if len(found) <= MOST_SIGNS else []


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
        _moments(texts)
    except pa.ArrowException:
        first = next((text for text in texts.to_pylist() if text is not None and not _is_date(text)), "")
        return f"has {first[:40]!r}, which is no date like 2020-12-31"
    return ""


def _is_date(text: str) -> bool:
    try:
        _moments(pa.array([text]))
    except pa.ArrowException:
        return False
    return True


def _moments(texts: pa.ChunkedArray | pa.Array) -> pa.ChunkedArray | pa.Array:
    """Return texts of dates as moments; one with an offset, such as +02:00 or Z, is converted to UTC."""
    has_offset = pc.match_substring_regex(texts, OFFSET)
    plain = pc.cast(_without(texts, has_offset), pa.timestamp("us"))
    converted = pc.cast(_without(texts, pc.invert(has_offset)), pa.timestamp("us", "UTC"))
    return pc.coalesce(converted.cast(pa.timestamp("us")), plain)


def repeats(values: pa.ChunkedArray | pa.Array) -> bool:
    """Return whether texts repeat as categories do, unlike names or notes: at most half of the rows differ."""
    return bool(pc.count_distinct(values.cast(value_type(values.type))).as_py() <= max(FEW, len(values) // 2))


def _is_text(kind: pa.DataType) -> bool:
    return is_label(kind) and not is_number(value_type(kind))


def _texts(values: pa.ChunkedArray | pa.Array) -> pa.ChunkedArray | pa.Array:
    """Return texts without a dictionary, and null for an empty one."""
    texts = values.cast(pa.large_string())
    return pc.if_else(pc.equal(texts, ""), pa.scalar(None, texts.type), texts)


def _without(values: pa.ChunkedArray | pa.Array, away: pa.ChunkedArray | pa.Array) -> pa.ChunkedArray | pa.Array:
    """Return values with null in some places."""
    return pc.if_else(away, pa.scalar(None, values.type), values)


def _as_numbers(texts: pa.ChunkedArray | pa.Array, column: str) -> pa.ChunkedArray | pa.Array:
    known = texts.drop_null()
    odd = known.filter(pc.invert(pc.match_substring_regex(known, NUMBER)))
    if len(odd):
        raise InputError(
            f"column {column!r} has {odd[0].as_py()[:40]!r}: must be a number or one of data.columns.na_values; add it "
            f"there, or name the column in data.columns.categories or data.without"
        )
    return pc.cast(pc.utf8_trim_whitespace(texts), pa.float64())


def _shown(value: str | float) -> str:
    """Return a value as a table of texts has it."""
    return value if isinstance(value, str) else f"{value:.17g}"


def _number(value: str | float) -> float | None:
    try:
        return float(value)
    except ValueError:
        return None


def missing_rows(values: pa.ChunkedArray | pa.Array) -> int:
    """Return the number of missing values: nulls, NaN, and texts without a character."""
    if pa.types.is_floating(values.type):
        return int(values.null_count + (pc.sum(pc.is_nan(values)).as_py() or 0))
    return int((_texts(values) if _is_text(values.type) else values).null_count)


def known_values(values: pa.ChunkedArray | pa.Array) -> pa.ChunkedArray | pa.Array:
    """Return a column of categories without dictionary, with null for each missing value."""
    kind = value_type(values.type)
    if pa.types.is_float16(kind):  # Arrow cannot add numbers of half precision
        values, kind = values.cast(pa.float32()), pa.float32()
    if pa.types.is_floating(kind):
        # Arrow looks values up by their bits: -0.0 becomes 0.0, which is the same category.
        return pc.add(pc.if_else(pc.is_nan(values), pa.scalar(None, kind), values), pa.scalar(0.0, kind))
    return values.cast(kind) if is_number(kind) else _texts(values)


def numbers_of(values: pa.Array) -> np.ndarray:
    """Return a column of numbers or dates as float64; dates in days since 1970-01-01, NaN for missing values."""
    if _is_text(values.type):
        values = _moments(_texts(values))
    if is_date(values.type):
        zone = getattr(values.type, "tz", None)
        moments = values.cast(pa.timestamp("us", zone), safe=False).cast(pa.int64()).cast(pa.float64(), safe=False)
        return np.asarray(moments.to_numpy(zero_copy_only=False) / MICROSECONDS_PER_DAY)
    numbers = values.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    return np.array(numbers)  # a copy: Arrow's memory is read-only
