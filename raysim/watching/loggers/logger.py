"""The protocol of a logger, and the run that it logs."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from raysim.config.tables import WatchTable
from raysim.measures.columns import MEASURES, columns_of

TRAINING = ("train_loss", "aggregated", "phase", "updates", "nonfinite", *columns_of(MEASURES))
TRAFFIC = ("bytes_up", "bytes_down", "exchanges")


@dataclass(frozen=True)
class LoggedRun:
    """A run as loggers see it.

    Args:
        name: name of its folder.
        folder: folder for loggers' files; the logger creates it.
        table: `[watch]`.
    """

    name: str
    folder: Path
    table: WatchTable

    @property
    def project(self) -> str:
        """Name that groups the results of several runs."""
        return self.table.project or self.name


class Logger(Protocol):
    """Receiver of a run's results, in a process of its own; its errors end the logger and not the run.

    The logger is made in the run's process and copied, so what it changes there stays there: files, and no variables of
    the caller.
    """

    def begin(self, run: LoggedRun) -> None:
        """Receive a run that begins or continues."""

    def algorithm(self, name: str, settings: Mapping[str, Any], done: int) -> None:
        """Receive an algorithm that begins or continues.

        Args:
            name: folder name of the algorithm.
            settings: settings by dotted key, such as `local.lr`.
            done: number of finished rounds. The logger receives them again, because a crash may have lost some. It may
                also receive later rounds again, with equal values apart from `seconds*` and `machine_*`.
        """

    def round(self, number: int, row: Mapping[str, float]) -> None:
        """Receive a round: its row of `metrics.parquet` without null values."""

    def end(self, summary: Mapping[str, float]) -> None:
        """Receive the final metrics and totals of the algorithm."""

    def close(self) -> None:
        """End, because the run is over or has failed; this is always the last call."""


def metric_path(column: str) -> str:
    """Return a column's title with its section before a slash."""
    if column in TRAINING:
        return f"training/{column}"
    if column in TRAFFIC or column.startswith("machine_bytes"):
        return f"traffic/{column}"
    if column.startswith(("seconds", "simulated_seconds")):
        return f"time/{column}"
    return f"evaluation/{column}"
