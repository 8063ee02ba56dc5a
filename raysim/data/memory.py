"""Data in memory: their tables, and the name that stands for them in files."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from os import PathLike
from typing import Any

import pyarrow as pa

from partitioning.sources.checked import unify_dictionaries
from partitioning.sources.memory import tables_of
from raysim.data.catalogue import MEMORY

KEYS = ("dataset", "test")
"""Keys of `[data]` that take data in memory."""

ROWS_AT_ONCE = 4096
DIGITS = 16


@dataclass(frozen=True)
class HeldData:
    """Data in memory as tables, and their name with a fingerprint of all values."""

    name: str
    train: pa.Table
    test: pa.Table | None

    @classmethod
    def of(cls, data: object, label: str) -> HeldData:
        """Read data in memory; see `partitioning.sources.memory.tables_of`."""
        train, test = tables_of(data, label)
        return cls(MEMORY + fingerprint(train, test), train, test)

    def __str__(self) -> str:
        return self.name


def take_objects(config: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, object]]:
    """Return an experiment's tables with `MEMORY` in place of data in memory, and these data by key of `[data]`."""
    table = config.get("data")
    if not isinstance(table, Mapping):
        return dict(config), {}
    plain = (str, int, float, PathLike, type(None))
    objects = {key: table[key] for key in KEYS if key in table and not isinstance(table[key], plain)}
    return {**config, "data": {**table, **dict.fromkeys(objects, MEMORY)}}, objects


def fingerprint(*tables: pa.Table | None) -> str:
    """Return a fingerprint of tables, equal for equal values; texts in other chunks may have another one."""
    digest = hashlib.sha256()
    for table in tables:
        digest.update(b"table")
        for part in () if table is None else _parts(table):
            digest.update(part)
    return digest.hexdigest()[:DIGITS]


def _parts(table: pa.Table) -> Iterator[pa.Buffer]:
    table = unify_dictionaries(table)
    for start in range(0, table.num_rows, ROWS_AT_ONCE):
        sink = pa.BufferOutputStream()
        part = table.slice(start, ROWS_AT_ONCE).combine_chunks()
        if start + ROWS_AT_ONCE >= table.num_rows:
            # A copy, because Arrow also writes some bits of the rows behind, which a slice does not have.
            with suppress(pa.ArrowInvalid):  # more than 2 GiB of texts or images
                columns = [pa.concat_arrays(column.chunks) for column in part.columns]
                part = pa.Table.from_arrays(columns, schema=part.schema)
        with pa.ipc.new_stream(sink, part.schema) as writer:
            writer.write_table(part)
        yield sink.getvalue()
