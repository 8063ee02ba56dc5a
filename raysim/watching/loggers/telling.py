"""Telling loggers of a run: each in a thread of its own, so that none holds up the rounds, or ends them."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from queue import SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING, Any

from raysim.watching.loggers.logger import Logger, Watched

if TYPE_CHECKING:
    from raysim.store.result import Result

LOG = logging.getLogger("raysim")

CLOSE_SECONDS = 60
"""How long loggers may take, after the run's end, to send on what they were told."""


class Telling:
    """The loggers of a run, as a context; at its end they have been told all, or have had their time.

    Args:
        run: what they are told of.
        loggers: each by its name.
        notice: is told, once, of each that fails.
    """

    def __init__(self, run: Watched, loggers: Mapping[str, Logger], notice: Callable[[str], object]) -> None:
        self._lines = [_Line(name, logger, notice) for name, logger in loggers.items()]
        for line in self._lines:
            line.tell("begin", run)

    def __enter__(self) -> Telling:
        return self

    def __exit__(self, *_: object) -> None:
        deadline = time.monotonic() + CLOSE_SECONDS
        for line in self._lines:
            line.close()
        for line in self._lines:
            line.join(max(0.0, deadline - time.monotonic()))
            if line.is_alive():
                line.say(f"has not taken all rounds in {CLOSE_SECONDS} s: the run ends without")

    def begin(self, name: str, settings: Mapping[str, Any], done: int, rows: Iterable[Mapping[str, Any]]) -> None:
        """An algorithm begins, or goes on after so many rounds, whose rows are these."""
        for line in self._lines:
            line.tell("algorithm", name, settings, done)
        if self._lines and done:
            for row in rows:
                self.round(row)

    def round(self, row: Mapping[str, Any]) -> None:
        """A round's row is written."""
        if self._lines:
            numbers = {name: float(value) for name, value in row.items() if isinstance(value, int | float)}
            number = int(numbers.pop("round"))
            for line in self._lines:
                line.tell("round", number, numbers)

    def end(self, result: Result) -> None:
        """An algorithm has ended."""
        totals = ("rounds", "model_round", "seconds", "simulated_seconds", "bytes_up", "bytes_down", "exchanges")
        summary = {name: value for name in totals if (value := getattr(result, name)) is not None}
        for line in self._lines:
            line.tell("end", {**summary, **result.metrics})


class _Line(Thread):
    """What one logger is told, in order; its first error is the last that it is told."""

    def __init__(self, name: str, logger: Logger, notice: Callable[[str], object]) -> None:
        # A daemon: where a logger hangs, Python ends without it.
        super().__init__(name=f"logger {name}", daemon=True)
        self._logger, self._notice = logger, notice
        self._told: SimpleQueue[tuple[str, tuple[Any, ...]] | None] = SimpleQueue()
        self._failed = False
        self.start()

    def tell(self, method: str, *given: Any) -> None:
        """Have a method of the logger called; nobody waits for it."""
        if not self._failed:
            self._told.put((method, given))

    def close(self) -> None:
        """Nothing more is to come."""
        self._told.put(None)

    def say(self, text: str) -> None:
        """Tell a person of the logger."""
        text = f"{self.name} {text}"
        LOG.warning(text)
        self._notice(text)

    def run(self) -> None:
        """Call the logger until nothing more comes, or it fails."""
        try:
            while (call := self._told.get()) is not None:
                getattr(self._logger, call[0])(*call[1])
        except BaseException as error:  # also SystemExit: nothing of it may end the run
            self._fail(error)
        try:
            self._logger.close()
        except BaseException as error:
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        if not self._failed:
            self._failed = True
            said = " ".join(str(error).split())[:200]
            self.say(f"failed ({type(error).__name__}: {said}); it is told no more, and the run goes on")
