"""Logger of the wall clock: it notes when each round of a run has ended, in a process of its own."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

FILE = Path("watch") / "stamps.txt"
"""File in the folder of a run: algorithm, round, and seconds of a clock that only moves forward."""


class Stamps:
    """Logger for `watch.loggers`."""

    def begin(self, run: Any) -> None:
        """Open the file."""
        run.folder.mkdir(parents=True, exist_ok=True)
        self._file = (run.folder / FILE.name).open("w", encoding="utf-8")

    def algorithm(self, name: str, settings: Mapping[str, Any], done: int) -> None:
        """Note the algorithm."""
        self._name = name

    def round(self, number: int, row: Mapping[str, float]) -> None:
        """Write the time."""
        print(self._name, number, time.perf_counter(), file=self._file)

    def end(self, summary: Mapping[str, float]) -> None:
        """Ignore the totals."""

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def read(folder: Path, name: str) -> dict[int, float]:
    """Return the time at which each round of an algorithm ended; a repeated round counts by its last run."""
    lines = (line.split() for line in (folder / FILE).read_text(encoding="utf-8").splitlines())
    return {int(number): float(at) for each, number, at in lines if each == name}
