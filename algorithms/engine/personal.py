"""Kept entries: an append-only store that visits write, and the ledger of where each client's latest stand."""

from __future__ import annotations

import os
import uuid
from bisect import bisect_right
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from algorithms.engine.layout import Layout, Packed

FULL = 16 * 2**20
"""Bytes after which a writer begins another file, so that files of which nothing is needed any more can go."""


@dataclass(frozen=True)
class Location:
    """Where one record of kept entries stands: a file of the store and its byte offset."""

    file: str
    offset: int


class PersonalStore:
    """One writer's view of a folder of records; every writer appends to files of its own.

    A record is a client's kept entries after one visit, raw. Nothing is ever overwritten, so a location that was
    handed out stays good whichever actor dies and whichever round is run again.

    Args:
        folder: shared by all writers of a run; made when the first record is written.
        layout: of the kept entries; gives a record's length.
        full: bytes after which another file is begun.
    """

    def __init__(self, folder: Path, layout: Layout, full: int = FULL) -> None:
        self.folder = folder
        self.layout = layout
        self._full = full
        self._file: BinaryIO | None = None

    def append(self, personal: Packed) -> Location:
        """Write one record; OSError where it is not written whole."""
        return self.put(personal.floats.tobytes() + personal.integers.tobytes())

    def read(self, location: Location) -> Packed:
        """Read one record, whoever wrote it; OSError where it is not there as a whole."""
        floats, integers, floating = self.layout.floats, self.layout.integers, np.dtype(self.layout.floating)
        cut = floating.itemsize * floats
        record = self.get(location, cut + 8 * integers)
        return Packed(np.frombuffer(record, floating, floats), np.frombuffer(record, np.int64, integers, offset=cut))

    def put(self, record: bytes) -> Location:
        """Write the bytes of one record; raises as `append` does."""
        if self._file is not None and self._file.tell() >= self._full:
            self.close()
        if self._file is None:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._file = (self.folder / f"{os.getpid()}-{uuid.uuid4().hex}.bin").open("xb", buffering=0)
        location = Location(Path(self._file.name).name, self._file.tell())
        left = memoryview(record)
        while left:
            # A disk that is nearly full takes a part of it; only the next attempt says why.
            left = left[self._file.write(left) :]
        return location

    def get(self, location: Location, length: int) -> bytes:
        """Read the bytes of one record; raises as `read` does."""
        path = self.folder / location.file
        with path.open("rb") as file:
            file.seek(location.offset)
            record = file.read(length)
        if len(record) < length:
            raise OSError(f"{path} ends within the record at byte {location.offset}: kept entries are lost")
        return record

    def close(self) -> None:
        """Close the writer's file, if one was begun."""
        if self._file is not None:
            self._file.close()
            self._file = None


Row = tuple[int, Location]
"""A round, and where what it wrote stands."""


@dataclass(eq=False)
class PersonalLedger:
    """For every client the locations of its kept entries, by the round that wrote them.

    It is asked for a round: so each `State` that shares it goes on seeing its own round's entries, until it is told to
    forget them. While one thread changes it, others may read of it what is not forgotten.

    Args:
        newest: the newest round that entered something.
    """

    newest: int = 0
    _rows: dict[int, list[Row]] = field(default_factory=dict)
    _several: set[int] = field(default_factory=set)

    def add(self, number: int, client: int, location: Location) -> None:
        """Enter what a client's visit of a round wrote; a round that is run again replaces its entry."""
        self.newest = max(self.newest, number)
        rows = self._rows.setdefault(client, [])
        i = bisect_right(rows, number, key=lambda row: row[0])
        if i and rows[i - 1][0] == number:
            rows[i - 1] = (number, location)
        else:
            rows.insert(i, (number, location))
        if len(rows) > 1:
            self._several.add(client)

    def latest(self, client: int, number: int) -> Location | None:
        """The client's entries as they were after a round, or None where it had none yet."""
        row = _latest(self._rows.get(client, []), number)
        return None if row is None else row[1]

    def clients(self, number: int) -> Iterable[int]:
        """Who keeps entries after a round, in client-id order."""
        return sorted(client for client in self._rows if self.latest(client, number) is not None)

    def forget(self, rounds: Collection[int]) -> None:
        """Forget what none of these rounds sees, nor any later one: it costs what was added since the last time."""
        for client in list(self._several):
            later = [row for row in self._rows[client] if row[0] > max(rounds)]
            self._rows[client] = _seen(self._rows[client], rounds) + later
            if len(self._rows[client]) < 2:
                self._several.remove(client)

    def table(self, rounds: Collection[int]) -> tuple[tuple[str, ...], NDArray[np.int64]]:
        """What these rounds see: the files, and client, round, number of the file, offset [n, 4] of each entry."""
        numbers: dict[str, int] = {}
        table = [
            (client, number, numbers.setdefault(location.file, len(numbers)), location.offset)
            for client, rows in list(self._rows.items())
            for number, location in _seen(rows, rounds)
        ]
        return tuple(numbers), np.array(table, np.int64).reshape(-1, 4)

    @classmethod
    def of(cls, files: Sequence[str], table: NDArray[np.int64]) -> PersonalLedger:
        """The ledger that has the entries of a `table`."""
        ledger = cls()
        for client, number, file, offset in table.tolist():
            ledger.add(number, client, Location(files[file], offset))
        return ledger

    def files(self) -> set[str]:
        """The files of the store that it names."""
        return {location.file for rows in list(self._rows.values()) for _, location in list(rows)}


def _latest(rows: Sequence[Row], number: int) -> Row | None:
    i = bisect_right(rows, number, key=lambda row: row[0])
    return rows[i - 1] if i else None


def _seen(rows: Sequence[Row], rounds: Collection[int]) -> list[Row]:
    """The rows that are the latest ones of some round."""
    found = (_latest(rows, number) for number in sorted(rounds))
    return list(dict.fromkeys(row for row in found if row is not None))
