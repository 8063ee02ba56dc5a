"""Checkpoints: what a stopped run goes on from, on disk as plain arrays and JSON, whole or not at all."""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path

from safetensors import safe_open
from safetensors.numpy import save_file

from algorithms import (
    Algorithm,
    Arrivals,
    Concurrent,
    Devices,
    Drawn,
    Importance,
    Packed,
    PersonalLedger,
    Sample,
    State,
)
from algorithms.engine.asynchronous import Trained, UnderWay
from algorithms.engine.client_update import UpdateRow
from algorithms.engine.personal import FULL
from algorithms.parts.arrivals import Flight, Timeline
from partitioning.common.disk import report_full_disk
from raysim.common.errors import InputError
from raysim.common.files import sync
from raysim.measures.selection import Best, Standing
from raysim.measures.twins import TwinState
from raysim.store.codec import Codec
from raysim.store.journal import batches
from raysim.store.result import Result, RunProgress, Snapshot

CLASSES = (
    *(Snapshot, RunProgress, Result, Standing, Best, TwinState, State, Packed, Devices),
    *(UnderWay, Timeline, Flight, Trained, UpdateRow, Arrivals, Concurrent, Drawn, Sample, Importance),
)
"""What a checkpoint may hold beside plain values and arrays."""

VERSION = "1"
NEWEST = 2
"""How many are kept: where the newest is damaged the other one serves."""

SHARE = 0.1
"""Of a run's time that checkpoints may take: after one there is none for nine times as long as it took."""

FILE = re.compile(r"round-(\d+)-([0-9a-f]{64})\.safetensors")


class DamagedError(ValueError):
    """A checkpoint, or what it names, is not what was written."""


class Checkpoints:
    """The checkpoints of one algorithm of a run.

    A file has its round and its own sha256 in its name, so that one renaming makes both appear.

    Args:
        folder: the algorithm's, which need not be there.
        algorithm: its five parts.
        identity: what the bytes of the run depend on; a run goes on only where it is the same.
        own: the user's modules, whose dataclasses a checkpoint may hold.
        saved: called after each, and as much a part of the time that it takes.
    """

    def __init__(
        self,
        folder: Path,
        algorithm: Algorithm,
        identity: Mapping[str, str],
        own: Collection[str] = (),
        saved: Callable[[], None] = lambda: None,
    ) -> None:
        self._run, self._folder, self._personal = folder, folder / "checkpoint", folder / "personal"
        self._algorithm, self._identity = algorithm, {"version": VERSION, **identity}
        self._codec = Codec(CLASSES, own)
        self._sweeper = Sweeper(self._personal)
        self._saved = saved
        self._next = 0.0
        self._round = 0

    @property
    def due(self) -> bool:
        """Whether it is time for another one."""
        return time.monotonic() >= self._next

    def newest(self, notice: Callable[[str], None]) -> Snapshot | None:
        """The newest that is whole; those that are damaged go, and are told of.

        Raises:
            InputError: it was written by a run on another machine, or of another experiment.
        """
        for path in sorted(self._files(), reverse=True):
            try:
                return self._begun(self._read(path))
            except DamagedError as error:
                notice(f"{path} is of no use, for {error}; it is left out")
                path.unlink()
        return None

    def write(self, snapshot: Snapshot) -> None:
        """Write one, unless it is there; returns when it would survive the machine."""
        if snapshot.state.round == self._round:
            return
        started, personal = time.monotonic(), snapshot.state.personal
        files, table = personal.table(snapshot.rounds)
        held, arrays = self._codec.encode(snapshot, {"algorithm": self._algorithm, "personal": personal})
        about = {"identity": self._identity, "files": files, **held}
        self._sweeper.sync(files)
        if not self._folder.exists():
            self._folder.mkdir()
            sync(self._run)
        aside = self._folder / ".partial"
        try:
            with report_full_disk(self._folder):
                save_file({**arrays, "personal": table}, aside, {"checkpoint": json.dumps(about, allow_nan=False)})
                sync(aside)
                aside.chmod(0o644)
                aside.replace(self._folder / f"round-{snapshot.state.round:09}-{_sha256(aside)}.safetensors")
        finally:
            aside.unlink(missing_ok=True)
        sync(self._folder)
        for old in sorted(self._files())[:-NEWEST]:
            old.unlink()
        self._sweeper.sweep(snapshot.state.round, set(files), personal)
        self._round = snapshot.state.round
        self._saved()
        taken = time.monotonic() - started
        self._next = time.monotonic() + taken * (1 / SHARE - 1)

    def _files(self) -> Iterator[Path]:
        return (path for path in self._folder.glob("round-*.safetensors") if FILE.fullmatch(path.name))

    def _begun(self, snapshot: Snapshot) -> Snapshot:
        self._round = snapshot.state.round
        self._sweeper.begin(snapshot.state.personal)
        return snapshot

    def _read(self, path: Path) -> Snapshot:
        """Read one; DamagedError where it, or what it names, is not what was written."""
        match = FILE.fullmatch(path.name)
        if match is None or _sha256(path) != match[2]:
            raise DamagedError("its sha256 is not that of its name")
        with safe_open(path, "numpy") as file:
            about = json.loads(file.metadata()["checkpoint"])
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 it is no mapping
        check_same(self._run, about["identity"], self._identity)
        personal = PersonalLedger.of(about["files"], arrays.pop("personal"))
        try:
            snapshot: Snapshot = self._codec.decode(about, arrays, {"algorithm": self._algorithm, "personal": personal})
        except (ValueError, AttributeError, ImportError) as error:
            raise InputError(f"{path} holds what is not known here ({error}): restore your module as it was") from None
        self._check_beside(snapshot, personal)
        return snapshot

    def _check_beside(self, snapshot: Snapshot, personal: PersonalLedger) -> None:
        """Refuse a checkpoint of which the rows or the kept entries are lost."""
        for name in ("metrics", "updates"):
            count = sum(1 for _ in batches(self._run / f"{name}.journal"))
            if count < snapshot.state.round:
                raise DamagedError(f"{name}.journal has {count} rounds of {snapshot.state.round}")
        for file in personal.files():
            if not (self._personal / file).is_file():
                raise DamagedError(f"kept/{file} is lost")


def check_same(folder: Path, there: Mapping[str, str], here: Mapping[str, str]) -> None:
    """Check that a run goes on with what its bytes depend on as it was.

    Args:
        folder: of the algorithm.
        there: what the run was begun with.
        here: what it would go on with.

    Raises:
        InputError: something is different; it is named, with both.
    """
    for key in {**there, **here}:
        if there.get(key) != here.get(key):
            raise InputError(
                f"{folder} was begun with {key} = {there.get(key)}, and here it is {here.get(key)}: must be the same, "
                "for others give other bytes; resume it where it was begun and as it was, or run it anew"
            )


class Sweeper:
    """Sees to the files of a store of kept entries: that they are on disk, and go when nobody needs them.

    Args:
        folder: of the store.
        full: bytes after which its writers begin other files.
    """

    def __init__(self, folder: Path, full: int = FULL) -> None:
        self._folder, self._full = folder, full
        self._synced: set[str] = set()
        self._ended: set[str] = set()
        self._needed: set[str] = set()
        self._unneeded: dict[str, int] = {}

    def begin(self, ledger: PersonalLedger) -> None:
        """Take note of what a run that goes on needs, and that nobody writes to the files that are there any more."""
        self._ended = {path.name for path in self._folder.glob("*.bin")}
        self._needed = ledger.files()

    def sync(self, files: Collection[str]) -> None:
        """Wait until these files would survive the machine."""
        changing = [name for name in files if name not in self._synced]
        if changing:
            sync(*(self._folder / name for name in changing), self._folder)
        self._synced.update(name for name in changing if self._is_full(name))

    def sweep(self, number: int, needed: set[str], ledger: PersonalLedger) -> None:
        """Remove the files that nothing needs.

        A visit that is under way has written what no ledger names yet. So a file goes only when it was full, and was
        not needed, already before; and when all rounds that could be under way then are in the checkpoint.

        Args:
            number: the round of the checkpoint that has just been written.
            needed: the files that it names.
            ledger: the run's, which goes on meanwhile.
        """
        # In this order: what is under way now is of no later round than the next after those that are entered.
        there = {path.name for path in self._folder.glob("*.bin") if self._is_full(path.name)}
        under_way = ledger.newest + 1
        named = ledger.files()
        unneeded = there - named - needed - self._needed
        for name in [name for name in unneeded if number >= self._unneeded.get(name, number + 1)]:
            (self._folder / name).unlink()
            unneeded.remove(name)
        self._unneeded = {name: self._unneeded.get(name, under_way) for name in unneeded}
        self._needed = needed

    def _is_full(self, name: str) -> bool:
        return name in self._ended or (self._folder / name).stat().st_size >= self._full


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
