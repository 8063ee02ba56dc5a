"""Wall clock of a command, divided into stages."""

import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any

STAGES = ("start", "data", "plan", "fleet", "training", "evaluation", "files", "end", "report")
"""Stages of a command, in order. `training`, `evaluation` and `files` are of each algorithm; `fleet` may be, too."""

ROUND_STAGES = ("sample", "send", "train", "sum", "aggregate", "evaluate", "write")
"""Stages of a round, in order; parts of the last two may overlap with the next round."""

STAT_START = 19
"""Place of the start time in `/proc/self/stat`, counted from the name's closing bracket."""


@dataclass(frozen=True)
class StageTime:
    """Seconds of a stage.

    Args:
        stage: a name of `STAGES`.
        seconds: wall-clock time.
        algorithm: folder of the algorithm; empty for a stage of the whole command.
    """

    stage: str
    seconds: float
    algorithm: str = ""


class Stopwatch:
    """Stages of a command one after the other; their seconds add up to the wall clock.

    Args:
        started: beginning of the command on the clock of `time.perf_counter`; None for now.
    """

    def __init__(self, started: float | None = None) -> None:
        self._seconds: dict[tuple[str, str], float] = {}
        self._since = time.perf_counter() if started is None else started
        self._stage, self._algorithm = "start", ""

    def enter(self, stage: str, algorithm: str = "") -> None:
        """End the current stage and begin another."""
        self.split({})
        self._stage, self._algorithm = stage, algorithm

    def split(self, parts: Mapping[str, float]) -> None:
        """End the current stage now, and give these seconds of it to other stages; it keeps the rest.

        Args:
            parts: seconds by stage. Work beside the rounds may have overlapped them, so the parts are cut to what is
                left, in their order.
        """
        now = time.perf_counter()
        left = now - self._since
        for stage, seconds in [*parts.items(), (self._stage, inf)]:
            part = min(left, seconds)
            left -= part
            if part:
                key = self._algorithm, stage
                self._seconds[key] = self._seconds.get(key, 0.0) + part
        self._since = now

    @contextmanager
    def divided(self, parts: Callable[[], Mapping[str, float]]) -> Iterator[None]:
        """Split the current stage when the context ends; see `split`. After an error the rest is training."""
        try:
            yield
        except BaseException:
            self._stage = "training"
            raise
        finally:
            self.split(parts())

    def stop(self) -> list[StageTime]:
        """End the current stage and return all stages."""
        self.split({})
        return self.times

    @property
    def times(self) -> list[StageTime]:
        """Stages that have ended."""
        return [StageTime(stage, taken, algorithm) for (algorithm, stage), taken in self._seconds.items()]


class RoundSeconds:
    """Sums of the rounds' training and evaluation, taken from their rows, and of the evaluation after them."""

    def __init__(self) -> None:
        self.training = self.evaluation = 0.0

    def parts(self, fleet: float) -> dict[str, float]:
        """Return the seconds by stage; `fleet` is the time spent on the start of actors."""
        return {"training": self.training, "fleet": fleet, "evaluation": self.evaluation}

    @contextmanager
    def evaluating(self, waited: Callable[[], float]) -> Iterator[None]:
        """Add the seconds of the context to the evaluation, without those of `waited`, the wait for actors so far."""
        began = time.perf_counter() - waited()
        try:
            yield
        finally:
            self.evaluation += time.perf_counter() - waited() - began

    def then(self, pass_on: Callable[[Mapping[str, Any]], object]) -> Callable[[Mapping[str, Any]], None]:
        """Return a function that adds a row of `metrics.parquet`, and passes it on."""

        def add(row: Mapping[str, Any]) -> None:
            self.training += row["seconds"]
            self.evaluation += row.get("seconds_evaluate") or 0.0
            pass_on(row)

        return add


def process_started() -> float:
    """Return the start of this process on the clock of `time.perf_counter`.

    Linux knows it to 10 ms. Elsewhere the process's CPU time is the least that has passed.
    """
    now = time.perf_counter()
    if sys.platform == "linux":
        try:
            fields = Path("/proc/self/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
            ticks = int(fields[STAT_START]) / os.sysconf("SC_CLK_TCK")
            return now - max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - ticks)
        except (OSError, ValueError, IndexError):
            pass
    return now - time.process_time()
