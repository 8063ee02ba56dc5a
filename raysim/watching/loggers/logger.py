"""What a logger is, and what it is told."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from raysim.measures.columns import MEASURES, columns_of

if TYPE_CHECKING:
    from raysim.config.experiment import WatchTable

TRAINING = ("train_loss", "aggregated", "phase", "updates", "nonfinite", *columns_of(MEASURES))
TRAFFIC = ("bytes_up", "bytes_down", "exchanges")


@dataclass(frozen=True)
class Watched:
    """A run, as loggers know it.

    Args:
        name: of its folder.
        folder: for the files of loggers; whoever writes some makes it.
        table: `[watch]`.
    """

    name: str
    folder: Path
    table: WatchTable

    @property
    def project(self) -> str:
        """What the run's results stand under, beside those of other runs."""
        return self.table.project or self.name


class Logger(Protocol):
    """Is told of a run in a thread of its own; what it raises ends it and not the run.

    It must not draw from the default generators of Python, NumPy and torch, which belong to visits.
    """

    def begin(self, run: Watched) -> None:
        """A run begins, or goes on."""

    def algorithm(self, name: str, settings: Mapping[str, Any], done: int) -> None:
        """One of its algorithms begins.

        Args:
            name: its folder's.
            settings: the keys of the resolved experiment, `local.lr` and the like, that it was given.
            done: the rounds after which it goes on. All of them are told again first, and those that were told of
                beyond are done again: what a logger had may have been lost with the process, and the numbers are equal
                but for `seconds*` and `machine_*`.
        """

    def round(self, number: int, row: Mapping[str, float]) -> None:
        """A round is written: its row of `metrics.parquet` without what is null."""

    def end(self, summary: Mapping[str, float]) -> None:
        """The algorithm has ended, with these metrics and totals."""

    def close(self) -> None:
        """The run is over, or has failed; always called, and last."""


def titled(column: str) -> str:
    """A column's title where a slash makes a section."""
    if column in TRAINING:
        return f"training/{column}"
    if column in TRAFFIC or column.startswith("machine_bytes"):
        return f"traffic/{column}"
    if column.startswith(("seconds", "simulated_seconds")):
        return f"time/{column}"
    return f"evaluation/{column}"
