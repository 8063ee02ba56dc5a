"""Checkpoints of an algorithm: plain arrays and JSON on disk, complete or absent."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import astuple
from pathlib import Path

from safetensors import safe_open
from safetensors.numpy import save

from algorithms import Algorithm, Packed, PersonalLedger, State
from algorithms.core.errors import DamagedError
from algorithms.core.personal import FULL, check_records
from algorithms.core.report import UpdateRows
from algorithms.core.sums import Sum
from algorithms.parts.arrivals import Flight, Timeline
from partitioning.common.disk import report_full_disk
from partitioning.common.paths import regular
from partitioning.store.files import sha256
from raysim.common.errors import InputError
from raysim.common.files import sync
from raysim.measures.selection import EvaluationHistory
from raysim.measures.twins import TwinState
from raysim.store.codec import Codec
from raysim.store.journal import JournalMark
from raysim.store.result import AlgorithmResult, RunProgress, Snapshot
from raysim.store.sources import OwnSources

CLASSES = (
    *(Snapshot, RunProgress, AlgorithmResult, EvaluationHistory, TwinState, State, Packed),
    *(Sum, Timeline, Flight, UpdateRows),
)
"""Classes that a checkpoint may hold beside plain values and arrays."""

VERSION = "10"
NEWEST = 2
"""Number of checkpoints kept: if the newest is damaged, the other one serves."""

SHARE, PERSONAL_SHARE = 0.02, 0.1
"""Largest share of a run's time for checkpoints: after one, the next waits for 49 times its duration, or 9 times.

The larger share is for clients with personal state, because only a checkpoint lets their old records be removed.
"""

FILE = re.compile(r"round-(\d+)-([0-9a-f]{64})\.safetensors")


class Checkpoints:
    """Checkpoints of one algorithm of a run.

    A file's name holds its round and its own sha256. One renaming makes both appear.

    Args:
        folder: folder of the algorithm; it need not exist.
        algorithm: parts of the algorithm.
        identity: everything that determines the run's bytes; a run continues only if it is unchanged.
        own: the user's modules, whose dataclasses a checkpoint may hold; their files must be unchanged, too.
        saved: function to call after each checkpoint; its time counts as the checkpoint's.

    Attributes:
        marks: ends of the journals at the checkpoint that `newest` returned, by name; empty without one.
        next: earliest time of the next checkpoint, on the clock of `time.monotonic`.
    """

    def __init__(
        self,
        folder: Path,
        algorithm: Algorithm,
        identity: Mapping[str, str],
        own: OwnSources = OwnSources(),
        saved: Callable[[], None] = lambda: None,
    ) -> None:
        self._run, self._folder, self._personal_folder = folder, folder / "checkpoint", folder / "personal"
        self._algorithm, self._identity = algorithm, {"version": VERSION, "folder": folder.name, **identity}
        self._own, self._sources = own, dict(own.files)
        self._codec = Codec(CLASSES, own.modules)
        self._sweeper = Sweeper(self._personal_folder)
        self._saved = saved
        self.marks: dict[str, JournalMark] = {}
        self.next = 0.0
        self._round = 0

    def newest(self, notice: Callable[[str], None]) -> Snapshot | None:
        """Return the newest intact checkpoint; remove damaged ones and report each in a line.

        Raises:
            InputError: a run on another machine, or of another experiment, wrote it.
        """
        for path in sorted(self._files(), reverse=True):
            try:
                snapshot, self.marks = self._read(path)
            except DamagedError as error:
                notice(f"{error}; raysim ignores the checkpoint {path}")
                path.unlink()
                continue
            self._round = snapshot.state.round
            self._sweeper.begin(snapshot.state.personal)
            return snapshot
        return None

    def write(self, snapshot: Snapshot, marks: Mapping[str, JournalMark]) -> None:
        """Write a checkpoint unless its round has one, and return once it would survive a power failure.

        `marks` are the ends of the journals at that time, by name.
        """
        if snapshot.state.round == self._round:
            return
        started, personal = time.monotonic(), snapshot.state.personal
        files, table = personal.table(snapshot.rounds)
        held, arrays = self._codec.encode(snapshot, {"algorithm": self._algorithm, "personal": personal})
        journals = {name: astuple(mark) for name, mark in marks.items()}
        about = {"identity": self._identity, "sources": self._sources, "files": files, "journals": journals, **held}
        self._sweeper.sync(files)
        self._folder.mkdir(exist_ok=True)
        aside = self._folder / ".partial"
        try:
            with report_full_disk(self._folder):
                # `save_file` raises an error of its own for a fault of the disk.
                aside.write_bytes(
                    save({**arrays, "personal": table}, {"checkpoint": json.dumps(about, allow_nan=False)})
                )
                sync(aside)
                aside.chmod(0o644)
                aside.replace(self._folder / f"round-{snapshot.state.round:09}-{sha256(aside)}.safetensors")
        finally:
            aside.unlink(missing_ok=True)
        sync(self._folder, self._run)
        for old in sorted(self._files())[:-NEWEST]:
            old.unlink(missing_ok=True)
        self._sweeper.sweep(snapshot.state.round, set(files), personal)
        self._round = snapshot.state.round
        self._saved()
        taken = time.monotonic() - started
        self.next = time.monotonic() + taken * (1 / (PERSONAL_SHARE if files else SHARE) - 1)

    def _files(self) -> Iterator[Path]:
        return (path for path in self._folder.glob("round-*.safetensors") if FILE.fullmatch(path.name))

    def _read(self, path: Path) -> tuple[Snapshot, dict[str, JournalMark]]:
        """Return a checkpoint and its marks of the journals.

        Raises:
            DamagedError: the checkpoint, or a file that it needs, is not as it was written.
        """
        match = FILE.fullmatch(path.name)
        if match is None or sha256(path) != match[2]:
            raise DamagedError(f"{path} is damaged: its sha256 differs from its name")
        with safe_open(regular(path), "numpy") as file:
            about = json.loads(file.metadata()["checkpoint"])
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 it is no mapping
        check_same(self._run, about["identity"], self._identity)
        # The modules that are loaded by now depend on the process.
        check_same(self._run, about["sources"], self._own.digests(about["sources"]))
        self._sources |= about["sources"]
        marks = {name: JournalMark(*mark) for name, mark in about["journals"].items()}
        for name, mark in marks.items():
            if not mark.holds(self._run / f"{name}.journal"):
                raise DamagedError(f"{self._run / name}.journal is damaged: its rows are not those that were written")
        personal = PersonalLedger.of(about["files"], arrays.pop("personal"))
        try:
            snapshot: Snapshot = self._codec.decode(about, arrays, {"algorithm": self._algorithm, "personal": personal})
        except (ValueError, AttributeError, ImportError) as error:
            raise InputError(
                f"{path} holds an unknown value ({error}): must be of known classes; restore your module"
            ) from None
        check_records(self._personal_folder, personal.locations(), snapshot.state.initial.nbytes)
        return snapshot, marks


def check_same(folder: Path, there: Mapping[str, str], here: Mapping[str, str]) -> None:
    """Check that everything that determines a run's bytes is the same there, at its start, and here.

    Raises:
        InputError: a value differs; both are named, or the file of the user's own code.
    """
    for key in {**there, **here}:
        if there.get(key) != here.get(key):
            if key.endswith(".py"):  # a file of the user's own code, by its sha256
                change = "has changed" if key in there and key in here else "is new" if key in here else "is gone"
                raise InputError(
                    f"{folder}: {key} {change} since the run began: must be the same, because the result depends on "
                    "it; undo that, or start a new run"
                )
            raise InputError(
                f"{folder} was begun with {key} = {there.get(key)}, and here it is {here.get(key)}: must be the same, "
                "because the result depends on it; resume it unchanged on the same kind of machine, or start a new run"
            )


class Sweeper:
    """Keeper of a personal store's files: it syncs them and removes unneeded ones.

    Args:
        folder: folder of the store.
        full: bytes after which a writer begins another file.
    """

    def __init__(self, folder: Path, full: int = FULL) -> None:
        self._folder, self._full = folder, full
        self._synced: set[str] = set()
        self._ended: set[str] = set()
        self._needed: set[str] = set()
        self._unneeded: dict[str, int] = {}

    def begin(self, ledger: PersonalLedger) -> None:
        """Register the files of a run that continues; no writer appends to them any more."""
        self._ended = {path.name for path in self._folder.glob("*.bin")}
        self._needed = ledger.files()

    def sync(self, files: Collection[str]) -> None:
        """Wait until these files would survive a power failure."""
        changing = [name for name in files if name not in self._synced]
        if changing:
            try:
                # A file that fills up after this moment has later records, which need another wait.
                full = [name for name in changing if self._is_full(name)]
                sync(*(self._folder / name for name in changing), self._folder)
            except FileNotFoundError as error:
                raise DamagedError(f"{error.filename} is missing: personal state is lost") from None
            self._synced.update(full)

    def sweep(self, round_number: int, needed: set[str], ledger: PersonalLedger) -> None:
        """Remove files that the newest checkpoint, of this round, does not need.

        A client update under way has written entries that no ledger names yet. Therefore an earlier sweep must have
        found a file full and unneeded. The file is removed when the checkpoint holds all rounds that were under way
        then.
        """
        # Keep this order: an update under way now belongs to the round after the ledger's newest, at the latest.
        there = {path.name for path in self._folder.glob("*.bin") if self._is_full(path.name)}
        under_way = ledger.newest + 1
        named = ledger.files()
        unneeded = there - named - needed - self._needed
        for name in [name for name in unneeded if round_number >= self._unneeded.get(name, round_number + 1)]:
            (self._folder / name).unlink(missing_ok=True)
            unneeded.remove(name)
        self._unneeded = {name: self._unneeded.get(name, under_way) for name in unneeded}
        self._needed = needed

    def _is_full(self, name: str) -> bool:
        return name in self._ended or (self._folder / name).stat().st_size >= self._full
