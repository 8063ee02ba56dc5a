"""Hostile tables, drawn: whole files, whose columns, types and values a reader may not expect."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from tests.fuzz.files.forms import ROWS, Rng, numbers, picture

TableDamage = Callable[[pa.Table, Rng], pa.Table]

EXTREME = (
    *(2**64 - 1, 2**63 - 1, -(2**63), 2**53 + 1, 0, -1),
    *(1e308, -1e308, 5e-324, 3.5e38, float("nan"), float("inf"), float("-inf"), -0.0),
)


def _put(table: pa.Table, name: str, values: Any, kind: pa.DataType | None = None) -> pa.Table:
    column = values if isinstance(values, pa.Array | pa.ChunkedArray) else pa.array(values, kind)
    return table.set_column(table.column_names.index(name), name, column)


def _name(table: pa.Table, rng: Rng) -> str:
    return "label" if rng.random() < 0.5 else str(rng.choice(table.column_names))


def extremes(table: pa.Table, rng: Rng) -> pa.Table:
    """Put an extreme number into a column, once or everywhere."""
    value = EXTREME[int(rng.integers(len(EXTREME)))]
    kind = pa.uint64() if isinstance(value, int) and value >= 0 else pa.int64()
    values = np.arange(ROWS).astype(object) % 4 if rng.random() < 0.7 else np.full(ROWS, value, object)
    values[int(rng.integers(ROWS))] = value
    return _put(table, _name(table, rng), pa.array(values.tolist(), kind if isinstance(value, int) else pa.float64()))


def missing(table: pa.Table, rng: Rng) -> pa.Table:
    """Put nulls into a column: one, or all of it."""
    name = _name(table, rng)
    rows = np.zeros(ROWS, bool)
    rows[: int(rng.choice([1, ROWS]))] = True
    return _put(table, name, pa.array(table[name].to_pylist(), table[name].type, mask=rows))


KINDS: tuple[Callable[[], pa.Array], ...] = (
    lambda: pa.nulls(ROWS),
    lambda: pa.array([number / 2 for number in range(ROWS)], pa.float16()),
    lambda: pa.array([bool(number % 2) for number in range(ROWS)]),
    lambda: pa.array([Decimal(number) for number in range(ROWS)], pa.decimal256(60, 2)),
    lambda: pa.array(range(ROWS), pa.timestamp("ns", tz="UTC")),
    lambda: pa.array(range(ROWS), pa.date32()),
    lambda: pa.array(range(ROWS), pa.duration("s")),
    lambda: pa.array([(1, 2, 3)] * ROWS, pa.month_day_nano_interval()),
    lambda: pa.array([bytes([number]) for number in range(ROWS)]),
    lambda: pa.array([bytes(4)] * ROWS, pa.binary(4)),
    lambda: pa.array([f"{number % 3}" for number in range(ROWS)], pa.string_view()),
    lambda: pa.array([b"a"] * ROWS, pa.binary_view()),
    lambda: pa.array([f"{number % 3}" for number in range(ROWS)], pa.large_string()),
    lambda: pa.array([[1, None]] * ROWS, pa.list_(pa.int64())),
    lambda: pa.array([[1] * (number % 3) for number in range(ROWS)], pa.large_list(pa.int8())),
    lambda: pa.array([[[1, 2]] * 2] * ROWS, pa.list_(pa.list_(pa.int8(), 2), 2)),
    lambda: pa.array([[]] * ROWS, pa.list_(pa.int64(), 0)),
    lambda: pa.array([[("a", 1)]] * ROWS, pa.map_(pa.string(), pa.int64())),
    lambda: pa.array([{"a": {"b": [1]}}] * ROWS),
    lambda: pa.array([{}] * ROWS, pa.struct([])),
    lambda: pa.array([{"bytes": picture(), "path": "\x1b[31m\n"}] * ROWS),
    lambda: pa.array([{"bytes": None, "path": "x.png"}] * ROWS, pa.struct([("bytes", pa.binary())])),
    lambda: pa.array([{"bytes": 3, "path": "x"}] * ROWS),
    lambda: pa.array(["a", "b", None] * (ROWS // 3)).dictionary_encode(),
    lambda: pa.DictionaryArray.from_arrays(pa.array([0] * ROWS, pa.int8()), pa.array([[1]], pa.list_(pa.int64()))),
    lambda: pa.DictionaryArray.from_arrays(pa.array([0, 1] * (ROWS // 2)), pa.array([None, "b"])),
    lambda: pa.DictionaryArray.from_arrays(pa.array([0, 7] * (ROWS // 2)), pa.array(["a", "b"]), safe=False),
    lambda: pa.RunEndEncodedArray.from_arrays(pa.array([ROWS], pa.int32()), pa.array([1])),
    lambda: pa.UnionArray.from_sparse(pa.array([0] * ROWS, pa.int8()), [pa.array(range(ROWS))]),
    lambda: pa.ExtensionArray.from_storage(pa.uuid(), pa.array([bytes(16)] * ROWS, pa.binary(16))),
    lambda: pa.ExtensionArray.from_storage(pa.json_(), pa.array(["{}"] * ROWS)),
    lambda: pa.FixedShapeTensorArray.from_numpy_ndarray(np.zeros((ROWS, 2, 3), np.float32)),
    lambda: pa.ExtensionArray.from_storage(
        pa.fixed_shape_tensor(pa.int8(), [2, 3], permutation=[1, 0]), pa.array([[1] * 6] * ROWS, pa.list_(pa.int8(), 6))
    ),
)


def odd_types(table: pa.Table, rng: Rng) -> pa.Table:
    """Give a column a type that is rare."""
    return _put(table, _name(table, rng), KINDS[int(rng.integers(len(KINDS)))]())


def odd_names(table: pa.Table, rng: Rng) -> pa.Table:
    """Give a column a name that another has, or that is empty, long, or no plain text."""
    names = ["", " ", "label", "x0", "\x1b[31mred", "a\nb", "a" * 10**6, "$x^2$ $", "x.y", "\0", "__index_level_0__"]
    given = list(table.column_names)
    given[int(rng.integers(len(given)))] = names[int(rng.integers(len(names)))]
    return table.rename_columns(given)


def odd_sizes(table: pa.Table, rng: Rng) -> pa.Table:
    """Return no rows, one row, no columns, the label alone, one class, or a class for each row."""
    label = pa.array(np.zeros(ROWS, np.int64))
    each = pa.array([f"class {number}" for number in range(ROWS)])
    tables = (
        table.slice(0, 0),
        table.slice(0, 1),
        table.select([]),
        table.select(["label"]),
        _put(table, "label", label),
        _put(table, "label", each),
        table.slice(3, 70),
        table.drop_columns("label"),
    )
    return tables[int(rng.integers(len(tables)))]


def many_columns(table: pa.Table, rng: Rng) -> pa.Table:
    """Return ten thousand to a hundred thousand columns, of few rows."""
    count = int(rng.choice([10_000, 30_000, 100_000]))
    few = table.slice(0, 12)
    return pa.table([few["x0"]] * count + [few["label"]], [*(f"c{place}" for place in range(count)), "label"])


def long_texts(table: pa.Table, rng: Rng) -> pa.Table:
    """Return labels or values that are long or odd texts."""
    texts = ["a" * 10**6, "b" * 2 * 10**7, "$a$ $b", "\x1b]0;title\x07", "\u202e\ud7ff\U0010ffff", "", "\0", "-" * 5000]
    text = texts[int(rng.integers(len(texts)))]
    return _put(table, _name(table, rng), [text if row == 3 else f"{row % 3}" for row in range(ROWS)])


TABLES: Mapping[str, TableDamage] = {
    "extreme values": extremes,
    "missing values": missing,
    "odd types": odd_types,
    "odd names": odd_names,
    "odd sizes": odd_sizes,
    "many columns": many_columns,
    "long texts": long_texts,
}


def hostile_table(kind: str, rng: Rng) -> pa.Table:
    """Return a table with one kind of damage, or with a second one on top if that goes."""
    table = TABLES[kind](numbers(), rng)
    if rng.random() < 0.2:
        with suppress(Exception):  # the second kind may need what the first one took away
            table = TABLES[str(rng.choice(sorted({*TABLES} - {"many columns"})))](table, rng)
    return table
