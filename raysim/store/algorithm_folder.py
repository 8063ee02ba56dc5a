"""The folder of one algorithm in a run: its tables, models, checkpoints and summary."""

from __future__ import annotations

import json
import logging
import math
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from safetensors.numpy import save_file
from torch import Tensor

from algorithms import Layouts, PersonalStore, State
from algorithms.engine.report import RoundReport
from partitioning.common.disk import write_whole
from raysim.common.background import Background
from raysim.common.files import sync
from raysim.store.checkpoint import Checkpoints
from raysim.store.journal import Journal, batches
from raysim.store.result import Snapshot
from raysim.store.run_folder import STOPPED, SUMMARY
from raysim.watching.log import at_most_every

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
"""Columns of `updates.parquet`: one row per client update."""

LOG = logging.getLogger("raysim")

LOG_SECONDS = 60.0
"""Least seconds between two checkpoints in the log."""

STAGES = ("sample", "send", "train", "sum", "aggregate", "evaluate", "write")
"""Stages of a round, in order; parts of the last two may overlap with the next round."""


def metrics_schema(columns: Sequence[str]) -> pa.Schema:
    """Return the columns of `metrics.parquet`: one row per round.

    An evaluation's column is null if the round was not evaluated or the metric is undefined. `seconds*` measure the
    machine. `simulated_seconds` is virtual time, and null without `[devices]`.

    Args:
        columns: names of the evaluation's columns.
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
    """Writer of one algorithm's folder; rows and checkpoints are written in the background.

    Args:
        path: folder, created here.
        columns: names of the evaluation's columns.
        checkpoints: checkpoints of the folder; None for no checkpoints.
        rounds: number of written rounds to keep; 0 starts anew.
        written: function to call in the writer's thread with each written row.
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
        self.saving: Snapshot | None = None
        """Checkpoint that is being written."""
        self._schema = metrics_schema(columns)
        self._metrics = Journal(path / "metrics.journal", self._schema, rounds)
        self._updates = Journal(path / "updates.journal", UPDATES, rounds)
        self._checkpoints = checkpoints
        self._written = written
        self._may_log_checkpoint = at_most_every(LOG_SECONDS)
        self._background = Background(lambda work, *given: work(*given))

    def append(self, row: Mapping[str, Any], report: RoundReport) -> None:
        """Schedule the rows of a round: one in the metrics, one per client update.

        Args:
            row: row of the round; a missing column becomes null.
            report: report of the round.

        Raises:
            Exception: an earlier round could not be written, such as a full disk; `finish` and `close` raise it, too.
        """
        self._background(self._write, dict(row), report)

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield the written rows of the metrics in order."""
        for batch in batches(self.path / "metrics.journal"):
            yield from batch.to_pylist()

    @property
    def due(self) -> bool:
        """Whether the next checkpoint is due: the last one is written and old enough."""
        return self._checkpoints is not None and self.saving is None and self._checkpoints.due

    def save(self, snapshot: Snapshot) -> None:
        """Schedule a checkpoint after the rows so far."""
        if self._checkpoints is not None:
            self.saving = snapshot
            self._background(self._save, self._checkpoints, snapshot)

    def finish(self, state: State, layouts: Layouts, summary: Mapping[str, Any], initial: Mapping[str, Tensor]) -> None:
        """Write models and tables, then the summary that marks them as complete; remove everything else.

        Args:
            state: state that left the final model.
            layouts: division of the model's entries.
            summary: contents of `summary.json`.
            initial: state of the module before training, with the frozen entries.
        """
        self._background.close()
        whole = layouts.model(state.model, state.average, layouts.frozen.pack(initial))
        with write_whole(self.path / "model.safetensors") as aside:
            save_file({name: np.ascontiguousarray(array) for name, array in whole.items()}, aside)
        if personal := _stacked(state, self.path / "personal", layouts):
            with write_whole(self.path / "personal.safetensors") as aside:
                save_file(personal, aside)
        self._metrics.finish()
        self._updates.finish()
        sync(*(path for path in self.path.iterdir() if path.is_file()), self.path)
        _write_json(self.path / SUMMARY, summary)
        tidy(self.path)

    def stop(self, reason: Mapping[str, Any]) -> None:
        """Write the tables of the finished rounds and the reason of the stop; the journals stay."""
        self._background.close()
        self._metrics.finish()
        self._updates.finish()
        _write_json(self.path / STOPPED, reason)

    def close(self) -> None:
        """Write all scheduled rows and stop; the journals stay."""
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
        if self._may_log_checkpoint():
            LOG.info("%s: checkpoint after round %d", self.path.name, snapshot.state.round)

    def _write(self, row: Mapping[str, Any], report: RoundReport) -> None:
        started = time.perf_counter()
        self._updates.append(_update_rows(row["round"], report))
        # Only the writer knows this time. It leaves out the row itself, which holds it.
        row = {**row, "seconds_write": time.perf_counter() - started}
        self._metrics.append(pa.RecordBatch.from_pylist([row], self._schema))
        self._written(row)


def tidy(path: Path) -> None:
    """Remove the journals, checkpoints and personal store of a finished algorithm."""
    for name in ("metrics.journal", "updates.journal"):
        (path / name).unlink(missing_ok=True)
    for name in ("checkpoint", "personal"):
        if (path / name).exists():
            shutil.rmtree(path / name)


def _write_json(path: Path, value: Mapping[str, Any]) -> None:
    with write_whole(path) as aside:
        aside.write_text(json.dumps(_plain(value), indent=2, allow_nan=False) + "\n", encoding="utf-8")


def _plain(value: Any) -> Any:
    """Replace NaN and infinity, which JSON lacks, by "nan" and "inf", which `float` reads."""
    if isinstance(value, Mapping):
        return {name: _plain(each) for name, each in value.items()}
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _update_rows(round_number: int, report: RoundReport) -> pa.RecordBatch:
    rows, blocks = report.updates, report.blocks
    columns: dict[str, Any] = {
        "round": np.full(len(rows), round_number),
        "client": rows.clients,
        "block": blocks,
        "samples": rows.column("samples"),
        "steps": rows.column("steps"),
        "loss": pa.array(rows.column("loss"), mask=rows.column("steps") == 0),
        "staleness": pa.array(rows.column("staleness"), from_pandas=True),
        "weight": rows.weights,
        "nonfinite": list(rows.nonfinite),
        "machine_block_seconds": _of_block(report, "seconds"),
        "machine_actor": _of_block(report, "actor"),
    }
    arrays = [pa.array(columns[field.name]).cast(field.type) for field in UPDATES]
    return pa.RecordBatch.from_arrays(arrays, schema=UPDATES)


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
