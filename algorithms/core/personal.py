"""Personal entries: an append-only store that client updates write, and the ledger of their locations."""

from __future__ import annotations

import os
import uuid
import zlib
from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from algorithms.core.errors import DamagedError
from algorithms.core.layout import Layout, Packed

FULL = 16 * 2**20
"""Bytes after which a writer begins another file, so that old files can be removed."""


CHECKSUM = 4
"""Bytes of the checksum behind a record."""


@dataclass(frozen=True)
class Location:
    """Location of a record of personal entries: a file of the store and a byte offset."""

    file: str
    offset: int

    def checksum(self, record: bytes) -> bytes:
        """Return the checksum of a record at this location; the same record elsewhere has another one."""
        place = zlib.crc32(f"{self.file} {self.offset}".encode())
        return zlib.crc32(record, place).to_bytes(CHECKSUM, "little")


class PersonalStore:
    """One writer's view of a folder of records; every writer appends to files of its own.

    A record holds the raw personal entries of a client after one update, and a checksum that is verified at every read.
    Nothing is ever overwritten: a location stays valid if an actor dies or a round is repeated.

    Args:
        folder: folder that all writers of a run share; made with the first record.
        layout: layout of the personal entries; it gives the length of a record.
        full: bytes after which another file begins.
    """

    def __init__(self, folder: Path, layout: Layout, full: int = FULL) -> None:
        self.folder = folder
        self.layout = layout
        self._cut = np.dtype(layout.floating).itemsize * layout.floats
        self._full = full
        self._file: BinaryIO | None = None

    def append(self, personal: Packed) -> Location:
        """Write one record; raise OSError if the record is not complete."""
        return self.put(personal.floats.tobytes() + personal.integers.tobytes())

    def read(self, location: Location) -> Packed:
        """Read one record of any writer; raise DamagedError if it is not the one that was written."""
        record, layout = self.get(location), self.layout
        return Packed(
            np.frombuffer(record, layout.floating, layout.floats),
            np.frombuffer(record, np.int64, layout.integers, offset=self._cut),
        )

    def put(self, record: bytes) -> Location:
        """Write the bytes of one record; raise as `append` does."""
        if self._file is not None and self._file.tell() >= self._full:
            self.close()
        if self._file is None:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._file = (self.folder / f"{os.getpid()}-{uuid.uuid4().hex}.bin").open("xb", buffering=0)
        location = Location(Path(self._file.name).name, self._file.tell())
        for part in (record, location.checksum(record)):
            left = memoryview(part)
            while left:
                # A nearly full disk takes a part of the record. Only the next attempt raises the error.
                left = left[self._file.write(left) :]
        return location

    def get(self, location: Location) -> bytes:
        """Read the bytes of one record; raise as `read` does."""
        (record,) = _records(self.folder, [location], self._cut + 8 * self.layout.integers)
        return record

    def close(self) -> None:
        """Close the writer's file, if there is one."""
        if self._file is not None:
            self._file.close()
            self._file = None


def check_records(folder: Path, locations: Iterable[Location], nbytes: int) -> None:
    """Raise DamagedError unless the records at these locations are the ones that were written.

    Args:
        folder: folder of the store.
        locations: locations of the records.
        nbytes: bytes of each record, without its checksum.
    """
    for _ in _records(folder, sorted(set(locations), key=lambda each: (each.file, each.offset)), nbytes):
        pass


def _records(folder: Path, locations: Iterable[Location], nbytes: int) -> Iterator[bytes]:
    """Yield the records at these locations; neighbours in one file take one opening.

    A file that exists but cannot be read raises OSError. The next attempt may succeed, so it is no damage.
    """
    for name, group in groupby(locations, key=lambda location: location.file):
        path = folder / name
        try:
            with open(path, "rb", opener=_open_at_once) as file:
                for location in group:
                    file.seek(location.offset)
                    record, checksum = file.read(nbytes), file.read(CHECKSUM)
                    if checksum != location.checksum(record):
                        raise DamagedError(f"{path}: the personal state at byte {location.offset} is damaged")
                    yield record
        except (FileNotFoundError, IsADirectoryError) as error:
            raise DamagedError(f"{path}: personal state is lost ({error.strerror})") from error


def _open_at_once(path: str, flags: int) -> int:
    """Open a file; if it is a named pipe, do not wait for a writer."""
    return os.open(path, flags | os.O_NONBLOCK)


Row = tuple[int, Location]
"""A round, and the location of the entries that it wrote."""


@dataclass(eq=False)
class PersonalLedger:
    """Locations of every client's personal entries, by the round that wrote them.

    Each query names a round. Several `State`s can therefore share the ledger, and each sees the entries of its own
    round, unless they are forgotten. While one thread changes the ledger, others may read entries that stay.

    Args:
        newest: newest round with an entry.
    """

    newest: int = 0
    _rows: dict[int, list[Row]] = field(default_factory=dict)
    _several: set[int] = field(default_factory=set)

    def add(self, round_number: int, client: int, location: Location) -> None:
        """Add the entries that a client wrote in a round; a repeated round replaces them."""
        self.newest = max(self.newest, round_number)
        rows = self._rows.setdefault(client, [])
        i = bisect_right(rows, round_number, key=lambda row: row[0])
        if i and rows[i - 1][0] == round_number:
            rows[i - 1] = (round_number, location)
        else:
            rows.insert(i, (round_number, location))
        if len(rows) > 1:
            self._several.add(client)

    def add_all(self, round_number: int, clients: Iterable[int], locations: Iterable[Location | None]) -> None:
        """Add the entries that several clients wrote in a round; None for a client that wrote none."""
        for client, location in zip(clients, locations, strict=True):
            if location is not None:
                self.add(round_number, client, location)

    def latest(self, client: int, round_number: int) -> Location | None:
        """Return the location of a client's entries after a round; None if it had none yet."""
        row = _latest(self._rows.get(client, []), round_number)
        return None if row is None else row[1]

    def clients(self, round_number: int) -> Iterable[int]:
        """Return the clients with entries after a round, in id order."""
        return sorted(client for client in self._rows if self.latest(client, round_number) is not None)

    def forget(self, rounds: Collection[int]) -> None:
        """Forget entries that neither these rounds nor later ones see; only clients with new entries cost time."""
        for client in list(self._several):
            later = [row for row in self._rows[client] if row[0] > max(rounds)]
            self._rows[client] = _seen(self._rows[client], rounds) + later
            if len(self._rows[client]) < 2:
                self._several.remove(client)

    def table(self, rounds: Collection[int]) -> tuple[tuple[str, ...], NDArray[np.int64]]:
        """Return the files that these rounds see, and a row (client, round, file, offset) of each entry."""
        files: dict[str, int] = {}
        table = [
            (client, round_number, files.setdefault(location.file, len(files)), location.offset)
            for client, rows in list(self._rows.items())
            for round_number, location in _seen(rows, rounds)
        ]
        return tuple(files), np.array(table, np.int64).reshape(-1, 4)

    @classmethod
    def of(cls, files: Sequence[str], table: NDArray[np.int64]) -> PersonalLedger:
        """Return the ledger with the entries of a `table`."""
        ledger = cls()
        for client, round_number, file, offset in table.tolist():
            ledger.add(round_number, client, Location(files[file], offset))
        return ledger

    def locations(self) -> set[Location]:
        """Return the locations of all entries."""
        return {location for rows in list(self._rows.values()) for _, location in list(rows)}

    def files(self) -> set[str]:
        """Return the files of the store that the ledger names."""
        return {location.file for location in self.locations()}


def _latest(rows: Sequence[Row], round_number: int) -> Row | None:
    i = bisect_right(rows, round_number, key=lambda row: row[0])
    return rows[i - 1] if i else None


def _seen(rows: Sequence[Row], rounds: Collection[int]) -> list[Row]:
    """Return the rows that are the latest for some round."""
    found = (_latest(rows, each) for each in sorted(rounds))
    return list(dict.fromkeys(row for row in found if row is not None))
