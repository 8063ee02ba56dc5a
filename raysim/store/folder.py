"""The run folder: what a run leaves on disk."""

from __future__ import annotations

import fcntl
import json
import logging
import math
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import tomli_w
from safetensors.numpy import save_file

from partitioning.common.disk import write_whole
from raysim.common.background import Background
from raysim.common.errors import InputError
from raysim.common.files import sync
from raysim.store.journal import Journal, batches
from raysim.watching.log import Seldom

if TYPE_CHECKING:  # torch comes with them, and whoever only reads a run's folder needs none
    from torch import Tensor

    from algorithms import Layout, Layouts, Packed, PersonalStore, State
    from algorithms.engine.state import RoundReport
    from raysim.store.checkpoint import Checkpoints
    from raysim.store.result import Snapshot

UPDATES = pa.schema(
    [
        ("round", pa.int64()),
        ("client", pa.int64()),
        ("block", pa.int64()),
        ("samples", pa.int64()),
        ("steps", pa.int64()),
        ("loss", pa.float64()),
        ("staleness", pa.int64()),
        ("weight", pa.float64()),
        ("nonfinite", pa.string()),
        ("machine_block_seconds", pa.float64()),
        ("machine_actor", pa.int64()),
    ]
)


LOG = logging.getLogger("raysim")

SUMMARY = "summary.json"
"""The file of an algorithm that says that all others are there."""

STOPPED = "stopped.json"
"""The file of an algorithm that says why it was stopped; it goes when the algorithm goes on."""

LOG_SECONDS = 60.0
"""From one checkpoint that is logged to the next."""

STAGES = ("sample", "send", "train", "sum", "aggregate", "evaluate", "write")
"""What a round's time goes into, in order; of the last two a part may overlap the next round."""


def metrics_schema(columns: Sequence[str]) -> pa.Schema:
    """One row a round; the evaluation's columns are null where a round was not evaluated, or one is undefined.

    Seconds are the machine's, `simulated_seconds` apart: those are virtual, null where there are no devices.
    """
    whole = ["updates", "nonfinite", "bytes_up", "bytes_down", "exchanges"]
    measured = ["machine_bytes_driver", "machine_bytes_inlined", "machine_bytes_moved", "machine_bytes_crossed"]
    return pa.schema(
        [
            ("round", pa.int64()),
            ("seconds", pa.float64()),
            *((f"seconds_{stage}", pa.float64()) for stage in STAGES),
            ("aggregated", pa.bool_()),
            ("phase", pa.int64()),
            ("train_loss", pa.float64()),
            ("simulated_seconds", pa.float64()),
            *((name, pa.int64()) for name in (*whole, *measured)),
            *((name, pa.float64()) for name in columns),
        ]
    )


class AlgorithmFolder:
    """One algorithm's part of a run.

    Args:
        path: the folder, made here.
        columns: the evaluation's columns.
        checkpoints: in it; None where there are to be none.
        rounds: of what is there already so many stay; 0 begins anew.
        written: is called, in the writer's thread, with each round's row once it is written.
    """

    def __init__(
        self,
        path: Path,
        columns: Sequence[str],
        checkpoints: Checkpoints | None = None,
        rounds: int = 0,
        written: Callable[[Mapping[str, Any]], object] = lambda row: None,
    ) -> None:
        if path.exists() and not rounds:
            shutil.rmtree(path)
        path.mkdir(exist_ok=True)
        for name in (STOPPED, "metrics.parquet", "updates.parquet"):
            (path / name).unlink(missing_ok=True)
        self.path = path
        self.personal = path / "personal"
        self.saving: Snapshot | None = None
        """The checkpoint that is being written."""
        self._schema = metrics_schema(columns)
        self._metrics = Journal(path / "metrics.journal", self._schema, rounds)
        self._updates = Journal(path / "updates.journal", UPDATES, rounds)
        self._checkpoints = checkpoints
        self._written = written
        self._log_checkpoint = Seldom(LOG_SECONDS)
        self._background = Background(lambda work, *given: work(*given))

    def append(self, row: Mapping[str, Any], report: RoundReport) -> None:
        """Have a round's row written, and a row for each of its visits, without waiting for it.

        Args:
            row: the round's; a column that it does not have is null.
            report: what the round did.

        Raises:
            Exception: what went wrong with an earlier round, such as a full disk; `finish` and `close` raise it too.
        """
        self._background(self._write, dict(row), report)

    def rows(self) -> Iterator[dict[str, Any]]:
        """The rows of the rounds that are written, in order."""
        for batch in batches(self.path / "metrics.journal"):
            yield from batch.to_pylist()

    @property
    def due(self) -> bool:
        """Whether it is time for a checkpoint: the one before is written, and was long enough ago."""
        return self._checkpoints is not None and self.saving is None and self._checkpoints.due

    def save(self, snapshot: Snapshot) -> None:
        """Have a checkpoint written after the rows so far, without waiting for it."""
        if self._checkpoints is not None:
            self.saving = snapshot
            self._background(self._save, self._checkpoints, snapshot)

    def finish(self, state: State, layouts: Layouts, summary: Mapping[str, Any], initial: Mapping[str, Tensor]) -> None:
        """Write the model, the kept entries, the tables and the summary, which says that all is there; the rest goes.

        Args:
            state: at the end.
            placement: how the model's entries are divided.
            summary: of the run.
            initial: the module's state as it was built: has the values of frozen entries.
        """
        from algorithms import PersonalStore

        self._background.close()
        whole = layouts.model(state.model, state.average, layouts.frozen.pack(initial))
        with write_whole(self.path / "model.safetensors") as aside:
            save_file({name: np.ascontiguousarray(array) for name, array in whole.items()}, aside)
        clients = list(state.personal.clients(state.round))
        if clients:
            with write_whole(self.path / "personal.safetensors") as aside:
                save_file(
                    _stacked(state, PersonalStore(self.personal, layouts.personal), layouts.personal, clients), aside
                )
        self._metrics.finish()
        self._updates.finish()
        sync(*(path for path in self.path.iterdir() if path.is_file()), self.path)
        with write_whole(self.path / SUMMARY) as aside:
            aside.write_text(json.dumps(_plain(summary), indent=2, allow_nan=False) + "\n", encoding="utf-8")
        tidy(self.path)

    def stop(self, why: Mapping[str, Any]) -> None:
        """Write the tables of the rounds that are done, and why there are no more for now; the journals stay."""
        self._background.close()
        self._metrics.finish()
        self._updates.finish()
        with write_whole(self.path / STOPPED) as aside:
            aside.write_text(json.dumps(_plain(why), indent=2, allow_nan=False) + "\n", encoding="utf-8")

    def close(self) -> None:
        """Write what was appended, and stop; the journals stay."""
        try:
            self._background.close()
        finally:
            self._metrics.close()
            self._updates.close()

    def _save(self, checkpoints: Checkpoints, snapshot: Snapshot) -> None:
        self._metrics.sync()
        self._updates.sync()
        checkpoints.write(snapshot)
        self.saving = None
        if self._log_checkpoint():
            LOG.info("%s: checkpoint after round %d", self.path.name, snapshot.state.round)

    def _write(self, row: Mapping[str, Any], report: RoundReport) -> None:
        started = time.perf_counter()
        self._updates.append(_updates(row["round"], report))
        # Only the writer knows how long it took; the row itself, which tells it, is not counted.
        row = {**row, "seconds_write": time.perf_counter() - started}
        self._metrics.append(pa.RecordBatch.from_pylist([row], self._schema))
        self._written(row)


def tidy(path: Path) -> None:
    """Remove from the folder of an algorithm that has ended what it needed on the way."""
    for name in ("metrics.journal", "updates.journal"):
        (path / name).unlink(missing_ok=True)
    for name in ("checkpoint", "personal"):
        if (path / name).exists():
            shutil.rmtree(path / name)


def algorithm_names(names: Sequence[str]) -> list[str]:
    """The folders of algorithms of these names: a second fedavg is fedavg-2, and module:function is function."""
    seen: Counter[str] = Counter()
    folders = []
    for name in (name.rpartition(":")[2] for name in names):
        seen[name] += 1
        folders.append(name if seen[name] == 1 else f"{name}-{seen[name]}")
    return folders


@contextmanager
def run_folder(out: Path) -> Iterator[Path]:
    """A new folder for a run, which stays if it ends early and can go on; not if the input turns out to be wrong.

    Raises:
        InputError: the folder exists and is not empty, or cannot be made.
    """
    made = [folder for folder in (out, *out.parents) if not folder.exists()]
    claim = out / "run.log"
    try:
        out.mkdir(parents=True, exist_ok=True)
        if any(path.name != claim.name for path in out.iterdir()):
            raise FileExistsError
        # The one step that only one of two runs can do: whoever opens the log first has the folder.
        claim.touch(exist_ok=False)
    except FileExistsError:
        what = "already holds a run" if claim.exists() or (out / "config.toml").exists() else "exists and is not empty"
        raise InputError(f"--out = {str(out)!r} {what}: must be a new folder; choose another, or remove it") from None
    except OSError as error:
        raise InputError(f"--out = {str(out)!r}: must be a folder that can be made ({error.strerror})") from None
    with locked(out):
        try:
            yield out
        except InputError as error:
            if _has_rounds(out):
                raise InputError(f"{error}; what was done stays, and raysim resume {out} goes on from there") from None
            remove_made(out, made)
            raise
        except BaseException:
            if not has_begun(out):
                remove_made(out, made)
            raise


def has_begun(folder: Path) -> bool:
    """Whether there is what a run needs to go on, once nobody runs it."""
    return (folder / "config.toml").is_file() and (folder / "run.log").is_file()


def remove_made(out: Path, made: Sequence[Path]) -> None:
    """Empty a run's folder, and remove it and those above it where they were made for it."""
    for path in out.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    for folder in made:
        # Another run may have made a folder beside this one in the meantime: then the parents stay.
        with suppress(OSError):
            folder.rmdir()


@contextmanager
def old_folder(folder: Path) -> Iterator[Path]:
    """The folder of a run that goes on; whatever happens, it stays.

    Raises:
        InputError: the run has not ended yet.
    """
    with locked(folder):
        for draft in folder.glob(".population.*.draft"):
            shutil.rmtree(draft)
        yield folder


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Within, no other process works on the run; its death frees it."""
    with (folder / "run.log").open("a", encoding="utf-8") as log:
        try:
            fcntl.flock(log, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InputError(f"{folder}: a process is running it: must have ended; wait for it, or stop it") from None
        except OSError as error:
            # Some file systems of clusters have no locks.
            LOG.warning("%s cannot be locked (%s)", folder, error.strerror)
        yield


def await_free(folder: Path, seconds: float) -> None:
    """Wait until no process works on the run, but no longer than so many seconds: one that was killed takes a while."""
    deadline = time.monotonic() + seconds
    while (folder / "run.log").is_file() and time.monotonic() < deadline:
        with suppress(InputError), locked(folder):
            return
        time.sleep(0.1)


def _has_rounds(out: Path) -> bool:
    """Whether an algorithm has a round to show."""
    ended = any(True for _ in out.glob(f"*/{SUMMARY}"))
    return ended or any(True for path in out.glob("*/metrics.journal") for _ in batches(path))


def write_config(path: Path, config: Mapping[str, Any]) -> None:
    """Write the resolved experiment."""
    with write_whole(path) as aside:
        aside.write_text(tomli_w.dumps(config), encoding="utf-8")


def _plain(value: Any) -> Any:
    """As JSON can say it, which has no such numbers: what diverged is "nan" or "inf", as `float` reads them."""
    if isinstance(value, Mapping):
        return {name: _plain(each) for name, each in value.items()}
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _updates(number: int, report: RoundReport) -> pa.RecordBatch:
    """A row a visit; by columns, for a round may have thousands."""
    rows = [row for _, row, _ in report.updates]
    reports = [row.report for row in rows]
    machines = [machine for _, _, machine in report.updates]
    columns = {
        "round": [number] * len(rows),
        "client": [row.client for row in rows],
        "block": [block for block, _, _ in report.updates],
        "samples": [each["samples"] for each in reports],
        "steps": [each["steps"] for each in reports],
        "loss": [each["loss"] if each["steps"] else None for each in reports],
        "staleness": [each.get("staleness") for each in reports],
        "weight": [row.weight for row in rows],
        "nonfinite": [row.nonfinite for row in rows],
        "machine_block_seconds": [machine["seconds"] for machine in machines],
        "machine_actor": [machine["actor"] for machine in machines],
    }
    return pa.RecordBatch.from_pydict(columns, UPDATES)


def _stacked(state: State, store: PersonalStore, layout: Layout, clients: Sequence[int]) -> dict[str, np.ndarray]:
    """Every kept entry of all clients in one array [clients, *shape], beside the clients' ids."""
    packed: list[Packed] = []
    for client in clients:
        location = state.personal.latest(client, state.round)
        if location is not None:
            packed.append(store.read(location))
    unpacked = [layout.unpack(one) for one in packed]
    stacks = {name: np.stack([one[name] for one in unpacked]) for name in unpacked[0]}
    return {"clients": np.asarray(clients, np.int64), **stacks}
