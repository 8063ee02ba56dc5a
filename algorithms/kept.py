"""Kept entries: an append-only store that visits write, and the ledger of where each client's latest stand."""

from __future__ import annotations

import os
import uuid
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

import numpy as np

from algorithms.layout import Layout, Packed


@dataclass(frozen=True)
class Location:
    """Where one record of kept entries stands: a file of the store and its byte offset."""

    file: str
    offset: int


class KeptStore:
    """One writer's view of a folder of records; every writer appends to a file of its own.

    A record is a client's kept entries after one visit, raw. Nothing is ever overwritten, so a location that was
    handed out stays good whichever actor dies and whichever round is run again.

    Args:
        folder: shared by all writers of a run; made when the first record is written.
        layout: of the kept entries; gives a record's length.
    """

    def __init__(self, folder: Path, layout: Layout) -> None:
        self.folder = folder
        self._layout = layout
        self._file: BinaryIO | None = None

    def append(self, kept: Packed) -> Location:
        """Write one record."""
        if self._file is None:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._file = (self.folder / f"{os.getpid()}-{uuid.uuid4().hex}.bin").open("xb", buffering=0)
        location = Location(Path(self._file.name).name, self._file.tell())
        left = memoryview(kept.floats.tobytes() + kept.integers.tobytes())
        while left:
            # A disk that is nearly full takes a part of it; only the next attempt says why.
            left = left[self._file.write(left) :]
        return location

    def read(self, location: Location) -> Packed:
        """Read one record, whoever wrote it."""
        floats, integers, floating = self._layout.floats, self._layout.integers, np.dtype(self._layout.floating)
        cut = floating.itemsize * floats
        with (self.folder / location.file).open("rb") as file:
            file.seek(location.offset)
            record = file.read(cut + 8 * integers)
        return Packed(np.frombuffer(record, floating, floats), np.frombuffer(record, np.int64, integers, offset=cut))

    def close(self) -> None:
        """Close the writer's file, if one was begun."""
        if self._file is not None:
            self._file.close()


@dataclass(frozen=True)
class KeptLedger:
    """For every client the locations of its kept entries, by the round that wrote them.

    It only grows, and is asked for a round: so each `State` that shares it goes on seeing its own round's entries.
    """

    _rows: dict[int, list[tuple[int, Location]]] = field(default_factory=dict)

    def add(self, number: int, client: int, location: Location) -> None:
        """Enter what a client's visit of a round wrote; a round that is run again replaces its entry."""
        rows = self._rows.setdefault(client, [])
        i = bisect_right(rows, number, key=lambda row: row[0])
        if i and rows[i - 1][0] == number:
            rows[i - 1] = (number, location)
        else:
            rows.insert(i, (number, location))

    def latest(self, client: int, number: int) -> Location | None:
        """The client's entries as they were after a round, or None where it had none yet."""
        rows = self._rows.get(client, [])
        i = bisect_right(rows, number, key=lambda row: row[0])
        return rows[i - 1][1] if i else None

    def clients(self, number: int) -> Iterable[int]:
        """Who keeps entries after a round, in client-id order."""
        return sorted(client for client in self._rows if self.latest(client, number) is not None)
