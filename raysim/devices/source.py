"""Tables of devices as users write them: Parquet with one row a device, checked and read by record batches."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from partitioning.common.columns import check_text
from partitioning.common.unreadable import UNREADABLE
from partitioning.sources.parquet import open_file, rows_at_once
from raysim.common.errors import InputError, unknown

LEAST, MOST = 1e-6, 1e15
"""Bounds of weights, of speeds in samples or bytes a second, and of times in seconds, whose sums stay finite."""

BATCH = 65_536
"""Most rows that are read and checked at a time."""

MOST_KINDS = 1000
"""Most kinds of devices of a table: reports have a line for each."""

TIMES = pa.list_(pa.float64())

SCHEMA = pa.schema(
    [
        ("client", pa.int64()),
        ("share", pa.float64()),
        ("device", pa.string()),
        *((name, pa.float64()) for name in ("compute", "down", "up", "latency", "period")),
        ("start", TIMES),
        ("end", TIMES),
    ]
)
"""Columns of a table; all but `compute` may be missing."""

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class DeviceRows:
    """Some rows of a table, checked.

    Args:
        numbers: columns of one number a device, float64 [n]; `client` and `kind` are whole.
        counts: number of intervals of each device, int64 [n].
        starts: beginnings of the intervals, float64 [intervals].
        ends: ends of the intervals, float64 [intervals].
    """

    numbers: dict[str, NDArray[Any]]
    counts: NDArray[np.int64]
    starts: Floats
    ends: Floats


class DeviceSource:
    """Table of devices in a Parquet file.

    Args:
        path: file of the table.
        clients: number of clients, of which a column `client` must name each once.

    Attributes:
        columns: names of the columns.
        kinds: numbers of the kinds that were read so far, by name.

    Raises:
        InputError: the file is no Parquet table of devices.
    """

    def __init__(self, path: Path, clients: int) -> None:
        self._name, self._row, self._seen = f"devices.table = {str(path)!r}", 0, np.zeros(clients, np.int64)
        with self._readable():
            self._file = open_file(path)
            self._rows = min(BATCH, rows_at_once(path, self._file))  # lists may be long
        names = self._file.schema_arrow.names
        self.columns = columns = set(names)
        if len(columns) < len(names):
            raise InputError(f"{self._name}: must have each column once, and has {', '.join(names)}; rename one")
        self.kinds: dict[str, int] = {} if "device" in columns else {"device": 0}
        for name in sorted(columns - set(SCHEMA.names)):
            raise unknown(f"column {name!r} of {self._name}", name, SCHEMA.names)
        for name, other in (("devices", "compute"), ("start", "end"), ("end", "start"), ("period", "start")):
            if other not in columns and name in {"devices", *columns}:
                raise InputError(f"{self._name}: must have the column {other} with {name}, and lacks it; add it")
        if {"client", "share"} <= columns:
            raise InputError(f"{self._name}: must have only one of the columns client and share; remove the other")

    def batches(self) -> Iterator[DeviceRows]:
        """Yield the rows of the table in order.

        Raises:
            InputError: a value makes no sense, with its row and column; or there is not one row for each client.
        """
        shares = 0.0
        batches = self._file.iter_batches(self._rows)
        while True:
            with self._readable():
                batch = next(batches, None)
            if batch is None:
                break
            rows = self._checked(batch)
            shares += rows.numbers.get("share", rows.numbers["compute"]).sum()
            yield rows
            self._row += batch.num_rows
        if not shares:
            raise InputError(f"{self._name}: must have a row for each device, with a share > 0; add rows or shares")
        if "client" in self.columns and (wrong := self._seen != 1).any():
            client, count = int(np.argmax(wrong)), len(wrong)
            raise InputError(
                f"{self._name}, column client: must have one row for each of the {count} clients, held-out ones "
                f"included, and has {self._seen[client]} for client {client}; correct the rows, or remove the column"
            )

    @contextmanager
    def _readable(self) -> Iterator[None]:
        """Turn errors of reading the file into an InputError."""
        try:
            yield
        except UNREADABLE as error:
            raise InputError(f"{self._name}: must be a readable Parquet file ({error}); check the file") from None

    def _checked(self, batch: pa.RecordBatch) -> DeviceRows:
        kinds = {"kind": self._kinds(batch)}
        numbers = kinds | {name: self._numbers(batch, name, 0.0) for name in ("down", "up", "latency")}
        numbers |= {
            name: self._numbers(batch, name, np.nan) for name in ("compute", "client", "share") if name in self.columns
        }
        if "client" in numbers:
            self._seen += np.bincount(numbers["client"], minlength=len(self._seen))
        if "start" not in self.columns:
            return DeviceRows(numbers, np.zeros(batch.num_rows, np.int64), np.zeros(0), np.zeros(0))
        return self._with_intervals(batch, numbers | {"period": self._numbers(batch, "period", inf)})

    def _numbers(self, batch: pa.RecordBatch, name: str, missing: float) -> NDArray[Any]:
        """Return a column of numbers.

        Args:
            batch: rows of the table.
            name: name of the column.
            missing: number in place of a null, or of all numbers if there is no such column; NaN allows no null.
        """
        if name not in self.columns:
            return np.full(batch.num_rows, missing)
        column = self._cast(batch.column(name), name, pa.int64() if name == "client" else pa.float64())
        missing = -1 if name == "client" else missing
        values: NDArray[Any] = pc.fill_null(column, missing).to_numpy(zero_copy_only=False)
        if name == "client":
            clients = len(self._seen)
            allowed = f"the id of a client, >= 0 and below {clients}, held-out clients included"
            self._require((values >= 0) & (values < clients), column, name, allowed)
        elif name in ("compute", "period"):
            given = np.isfinite(values) | pc.is_null(column).to_numpy(zero_copy_only=False) & (missing == inf)
            inside = (values >= LEAST) & ((values <= MOST) | (values == missing))
            self._require(given & inside, column, name, f"a finite number > 0 (from {LEAST:g} to {MOST:g})")
        else:
            inside = (values == 0) | (values >= LEAST) & (values <= MOST)
            self._require(inside, column, name, f"a finite number >= 0 (0, or from {LEAST:g} to {MOST:g})")
        return values

    def _kinds(self, batch: pa.RecordBatch) -> NDArray[np.int64]:
        if "device" not in self.columns:
            return np.zeros(batch.num_rows, np.int64)
        check_text(batch.select(["device"]), name=self._name, first=self._row)
        column = self._cast(batch.column("device"), "device", pa.string())
        self._require(pc.is_valid(column).to_numpy(zero_copy_only=False), column, "device", "the name of a kind")
        encoded = column.dictionary_encode()
        numbers = [self.kinds.setdefault(name, len(self.kinds)) for name in encoded.dictionary.to_pylist()]
        if len(self.kinds) > MOST_KINDS:
            raise InputError(f"{self._name}, column device: must have at most {MOST_KINDS} kinds; join some of them")
        kinds: NDArray[np.int64] = np.array(numbers, np.int64)[encoded.indices.to_numpy()]
        return kinds

    def _with_intervals(self, batch: pa.RecordBatch, numbers: dict[str, NDArray[Any]]) -> DeviceRows:
        """Return rows with their intervals; a device without lists gets one that never ends."""
        lists = {name: batch.column(name) for name in ("start", "end")}
        lengths = {}
        for name, column in lists.items():
            if not isinstance(column, pa.ListArray | pa.LargeListArray | pa.FixedSizeListArray):
                raise InputError(f"{self._name}, column {name}: must hold lists of seconds, and is {column.type}")
            lengths[name] = pc.fill_null(pc.list_value_length(column), -1).to_numpy(zero_copy_only=False)
        counts = lengths["start"].astype(np.int64)
        self._require(counts == lengths["end"], lists["end"], "end", "as long as the list in column start")
        always, counts = counts < 0, np.maximum(counts, 0)
        owners = np.repeat(np.arange(len(counts)), counts)
        times = {
            name: pc.fill_null(self._cast(pc.list_flatten(column), name, pa.float64()), np.nan).to_numpy()
            for name, column in lists.items()
        }
        starts, ends = times["start"], times["end"]
        follows = np.diff(owners, prepend=-1) == 0
        checks = {
            "start": (np.isfinite(starts) & (starts >= 0), "finite seconds >= 0"),
            "end": (np.isfinite(ends) & (ends > starts), "finite seconds, each above its start"),
        }
        for name, (holds, allowed) in checks.items():
            self._require(_all_of(holds, owners, counts), lists[name], name, allowed)
        ordered = ~follows | (starts >= np.roll(ends, 1))
        self._require(_all_of(ordered, owners, counts), lists["start"], "start", "ascending, none before the last end")
        inside = ends <= numbers["period"][owners]
        self._require(_all_of(inside, owners, counts), lists["end"], "end", "at most the period")
        places = (np.cumsum(counts) - counts)[always]
        numbers["period"] = np.where(always, 1.0, numbers["period"])
        starts, ends = np.insert(starts, places, 0.0), np.insert(ends, places, 1.0)
        return DeviceRows(numbers, counts + always, starts, ends)

    def _cast(self, column: pa.Array, name: str, kind: pa.DataType) -> pa.Array:
        try:
            return column.cast(kind)
        except pa.ArrowException as error:
            raise InputError(
                f"{self._name}, column {name}: must hold values of type {kind}, and is {column.type} ({error}); "
                "convert it"
            ) from None

    def _require(self, holds: Flags, column: pa.Array, name: str, allowed: str) -> None:
        """Raise InputError for the first row that does not hold."""
        if not holds.all():
            place = int(np.argmin(holds))
            raise InputError(
                f"{self._name}: row {self._row + place}, column {name} = {column[place].as_py()!r}: must be {allowed}; "
                "correct the table (its first row is row 0)"
            )


def _all_of(holds: Flags, owners: NDArray[np.int64], counts: NDArray[np.int64]) -> Flags:
    """Return whether something holds for all intervals of each device, [n]."""
    all_hold: Flags = np.bincount(owners[~holds], minlength=len(counts)) == 0
    return all_hold
