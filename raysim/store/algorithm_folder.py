"""The folder of one algorithm in a run: its tables, models, checkpoints and summary."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from safetensors.numpy import save
from torch import Tensor

from algorithms import Layouts, PersonalStore, State
from algorithms.core.report import DroppedUpdates, RoundReport
from algorithms.training.reports import own_numbers
from partitioning.common.disk import write_whole
from raysim.common.background import Background
from raysim.common.files import sync
from raysim.common.log import LOG
from raysim.common.names import ALGORITHM_FILES, CLUSTERS, MODEL, PERSONAL, STATE_FILES, STOPPED, SUMMARY
from raysim.store.checkpoint import Checkpoints
from raysim.store.journal import Journal, JournalMark, batches
from raysim.store.participation import participation
from raysim.store.result import Snapshot
from raysim.store.run_folder import remove_made
from raysim.store.summary import write_summary
from raysim.store.tables import OUTCOME, REPORTED, UPDATES, metrics_schema
from raysim.watching.log import at_most_every

LOG_SECONDS = 60.0
"""Least seconds between two checkpoints in the log."""


class AlgorithmFolder:
    """Writer of one algorithm's folder; rows and checkpoints are written in the background.

    Args:
        path: folder, created here.
        columns: names of the evaluation's columns.
        checkpoints: checkpoints of the folder. If none has been read, the folder starts anew.
        written: function to call in the writer's thread with each written row.
        of_clients: ids of the training clients, `client`, ascending, and further columns of `updates.parquet` about
            them.
        reports: whether client updates return numbers of their own.
        outcomes: whether client updates may come late, or never.
    """

    def __init__(
        self,
        path: Path,
        columns: Sequence[str],
        checkpoints: Checkpoints,
        written: Callable[[Mapping[str, Any]], object],
        of_clients: pa.RecordBatch,
        reports: bool = False,
        outcomes: bool = False,
    ) -> None:
        marks = checkpoints.marks
        if path.exists() and not marks:
            remove_made(path, ALGORITHM_FILES)
        path.mkdir(exist_ok=True)
        for name in (STOPPED, "metrics.parquet", "updates.parquet"):
            (path / name).unlink(missing_ok=True)
        self.path = path
        self.saving: Snapshot | None = None
        """Checkpoint that is being written."""
        self._schema = metrics_schema(columns)
        self._metrics = Journal(path / "metrics.journal", self._schema, marks.get("metrics", JournalMark()))
        further = [REPORTED] * reports + list(of_clients.schema)[1:] + [OUTCOME] * outcomes
        self._rows = pa.schema([*UPDATES, *further])
        self._of_clients = of_clients
        self._updates = Journal(path / "updates.journal", self._rows, marks.get("updates", JournalMark()))
        self._marks = marks
        self._checkpoints = checkpoints
        self._written = written
        self._may_log_checkpoint = at_most_every(LOG_SECONDS)
        self._background = Background(lambda work, *given: work(*given))

    def append(self, row: Mapping[str, Any], report: RoundReport) -> None:
        """Schedule the rows of a round: one in the metrics, with null for a missing column, and one per client update.

        Raises:
            Exception: an earlier round could not be written, such as a full disk; `finish` and `close` raise it, too.
        """
        self._background(self._write, dict(row), report)

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield the written rows of the metrics in order."""
        for batch in batches(self.path / "metrics.journal"):
            yield from batch.to_pylist()

    def accounts(self, clients: np.ndarray, arriving: Collection[int]) -> dict[str, np.ndarray]:
        """Wait for all rows, and return each client's sums, [n] each; see `participation`.

        Raises:
            DamagedError: a journal is not as it was written.
        """
        self._background.close()
        self._metrics.check()
        self._updates.check()
        return participation(self.path, clients, OUTCOME in self._rows, arriving)

    @property
    def due(self) -> bool:
        """Whether the next checkpoint is due: the last one is written and old enough."""
        return self.saving is None and time.monotonic() >= self._checkpoints.next

    def mark(self) -> None:
        """Remember the end of the rows so far for the next checkpoint."""
        self._background(self._mark)

    def save(self, snapshot: Snapshot) -> None:
        """Schedule a checkpoint of the rows up to the last mark."""
        self.saving = snapshot
        self._background(self._save, snapshot)

    def finish(
        self,
        state: State,
        layouts: Layouts,
        summary: Mapping[str, Any],
        initial: Mapping[str, Tensor],
        tables: Mapping[str, pa.Table] = {},
    ) -> None:
        """Write models and tables, then the summary that marks them as complete; remove everything else.

        The frozen entries come from `initial`, the module before training. Tables go by the names of their files.
        """
        self._background.close()
        frozen = layouts.frozen.pack(initial)
        whole = [layouts.model(model, state.average, frozen) for model in state.models]
        written = {MODEL: whole[0], PERSONAL: _stacked(state, self.path / "personal", layouts)}
        if len(whole) > 1:
            written[CLUSTERS] = {name: np.stack([each[name] for each in whole]) for name in whole[0]}
        for file, entries in written.items():
            if entries:
                with write_whole(self.path / file) as aside:
                    # `save_file` raises an error of its own for a fault of the disk, and leaves a draft behind.
                    aside.write_bytes(save({name: np.ascontiguousarray(array) for name, array in entries.items()}))
        for file, table in tables.items():
            with write_whole(self.path / file) as aside:
                pq.write_table(table, aside)
        self._metrics.finish()
        self._updates.finish()
        sync(*(path for path in self.path.iterdir() if path.is_file()), self.path)
        write_summary(self.path / SUMMARY, summary, tables)
        # Nothing is left to resume from, so the summary must survive a power failure first.
        sync(self.path / SUMMARY, self.path)
        tidy(self.path)

    def stop(self, reason: Mapping[str, Any]) -> None:
        """Write the tables of the finished rounds and the reason of the stop; the journals stay."""
        self._background.close()
        self._metrics.finish()
        self._updates.finish()
        write_summary(self.path / STOPPED, reason)

    def close(self) -> None:
        """Write all scheduled rows and stop; the journals stay."""
        try:
            self._background.close()
        finally:
            self._metrics.close()
            self._updates.close()

    def _mark(self) -> None:
        self._marks = {"metrics": self._metrics.mark, "updates": self._updates.mark}

    def _save(self, snapshot: Snapshot) -> None:
        self._metrics.sync()
        self._updates.sync()
        self._checkpoints.write(snapshot, self._marks)
        self.saving = None
        if self._may_log_checkpoint():
            LOG.info("%s: checkpoint after round %d", self.path.name, snapshot.state.round)

    def _write(self, row: Mapping[str, Any], report: RoundReport) -> None:
        started = time.perf_counter()
        self._append_updates(row["round"], _counted(report, REPORTED in self._rows))
        if report.dropped is not None and len(report.dropped):
            self._append_updates(row["round"], _dropped(report.dropped))
        # Only the writer knows this time. It leaves out the row itself, which holds it.
        row = {**row, "seconds_write": time.perf_counter() - started}
        self._metrics.append(pa.RecordBatch.from_pylist([row], self._schema))
        self._written(row)

    def _append_updates(self, round_number: int, columns: Mapping[str, Any]) -> None:
        """Append rows of a round to the updates; a column without values is null."""
        clients, schema = columns["client"], self._rows
        known = {**columns, "round": np.full(len(clients), round_number), **_facts(clients, self._of_clients)}
        nothing = pa.nulls(len(clients))
        arrays = [pa.array(known.get(field.name, nothing)).cast(field.type) for field in schema]
        self._updates.append(pa.RecordBatch.from_arrays(arrays, schema=schema))


def tidy(path: Path) -> None:
    """Remove the journals, checkpoints and personal store of a finished algorithm."""
    remove_made(path, STATE_FILES)


def _counted(report: RoundReport, reports: bool) -> dict[str, Any]:
    """Return the columns of updates that counted; with `reports` also the numbers that each returned."""
    rows = report.updates
    columns: dict[str, Any] = {
        "client": rows.clients,
        "block": report.blocks,
        "samples": rows.column("samples"),
        "steps": rows.column("steps"),
        "loss": pa.array(rows.column("loss"), mask=rows.column("steps") == 0),
        "staleness": pa.array(rows.column("staleness"), from_pandas=True),
        "weight": rows.weights,
        "nonfinite": list(rows.nonfinite),
        "machine_block_seconds": _of_block(report, "seconds"),
        "machine_actor": _of_block(report, "actor"),
        OUTCOME.name: np.full(len(rows), "counted"),
    }
    if reports:
        columns[REPORTED.name] = pa.array([list(own_numbers(each).items()) for each in rows.reports()], REPORTED.type)
    return columns


def _dropped(dropped: DroppedUpdates) -> dict[str, Any]:
    """Return the columns of updates that never counted; nothing was computed, so the others are null."""
    return {
        "client": dropped.clients,
        "samples": dropped.samples.astype(np.int64),
        "steps": np.zeros(len(dropped), np.int64),
        "weight": np.zeros(len(dropped)),
        OUTCOME.name: list(dropped.outcomes),
    }


def _facts(clients: np.ndarray, of_clients: pa.RecordBatch) -> dict[str, Any]:
    """Return the columns about the clients of some rows; null for a row of no client."""
    names = of_clients.schema.names[1:]
    if not names:
        return {}
    known = of_clients.column("client").to_numpy()  # ascending
    places = np.minimum(np.searchsorted(known, clients), len(known) - 1)
    rows = pa.array(places, mask=known[places] != clients)
    return {name: of_clients.column(name).take(rows) for name in names}


def _of_block(report: RoundReport, fact: str) -> np.ndarray:
    """Return a fact of the machine for each client update."""
    numbers, places = np.unique(report.blocks, return_inverse=True)
    facts: np.ndarray = np.array([report.machine[number][fact] for number in numbers.tolist()], float)[places]
    return facts


def _stacked(state: State, folder: Path, layouts: Layouts) -> dict[str, np.ndarray]:
    """Return each personal entry of all clients as [clients, *shape], and the clients' ids; empty without clients."""
    clients = list(state.personal.clients(state.round))
    store = PersonalStore(folder, layouts.personal)
    locations = [state.personal.latest(client, state.round) for client in clients]
    unpacked = [layouts.personal.unpack(store.read(location)) for location in locations if location is not None]
    if not unpacked:
        return {}
    stacks = {name: np.stack([one[name] for one in unpacked]) for name in unpacked[0]}
    return {"clients": np.asarray(clients, np.int64), **stacks}
