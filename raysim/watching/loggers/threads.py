"""One thread and one process per logger, so that no logger delays, ends or changes the run."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from queue import SimpleQueue
from threading import Thread
from typing import Any

from raysim.watching.loggers.logger import LoggedRun, Logger
from raysim.watching.loggers.process import LoggerError, LoggerProcess

LOG = logging.getLogger("raysim")

CLOSE_SECONDS = 60
"""Seconds that loggers get at the end of a run."""


class LoggerThreads:
    """Context of a run's loggers; on exit it waits until they are done or their time is up.

    Args:
        run: run to log.
        loggers: loggers by name, each for a process of its own.
        within: loggers by name that this process calls, because they share its state; they must not draw.
        notice: receiver of one text per logger that fails.
    """

    def __init__(
        self,
        run: LoggedRun,
        loggers: Mapping[str, Logger],
        within: Mapping[str, Logger],
        notice: Callable[[str], object],
    ) -> None:
        # All processes begin before the first thread, whose locks a copy of this process would keep.
        self._processes = {name: LoggerProcess(logger) for name, logger in loggers.items()}
        calls = self._processes | {name: partial(_call, logger) for name, logger in within.items()}
        self._threads = [_LoggerThread(name, call, notice) for name, call in calls.items()]
        self._call("begin", run)

    def __enter__(self) -> LoggerThreads:
        return self

    def __exit__(self, *_: object) -> None:
        deadline = time.monotonic() + CLOSE_SECONDS
        try:
            for thread in self._threads:
                thread.close()
            for thread in self._threads:
                thread.join(max(0.0, deadline - time.monotonic()))
                if thread.is_alive():
                    thread.leave(f"has not processed all rounds in {CLOSE_SECONDS} s: the run ends without it")
        finally:
            for process in self._processes.values():
                process.end_process()

    def begin(self, name: str, settings: Mapping[str, Any], done: int, rows: Iterable[Mapping[str, Any]]) -> None:
        """Report an algorithm that begins, or continues after `done` rounds with these rows."""
        self._call("algorithm", name, settings, done)
        if self._threads and done:
            for row in rows:
                self.round(row)

    def round(self, row: Mapping[str, Any]) -> None:
        """Report a written row of a round."""
        if self._threads:
            numbers = {name: float(value) for name, value in row.items() if isinstance(value, int | float)}
            self._call("round", int(numbers.pop("round")), numbers)

    def end(self, summary: Mapping[str, float]) -> None:
        """Report the final metrics and totals of an algorithm."""
        self._call("end", summary)

    def _call(self, method: str, *given: Any) -> None:
        for thread in self._threads:
            thread.call(method, *given)


def _call(logger: Logger, method: str, *given: Any) -> None:
    getattr(logger, method)(*given)


class _LoggerThread(Thread):
    """Thread that calls one logger in order; the logger's first error ends it."""

    def __init__(self, name: str, logger: Callable[..., None], notice: Callable[[str], object]) -> None:
        # Python ends without a daemon thread if its logger hangs.
        super().__init__(name=f"logger {name}", daemon=True)
        self._logger, self._notice = logger, notice
        self._calls: SimpleQueue[tuple[str, tuple[Any, ...]] | None] = SimpleQueue()
        self._failed = False
        self.start()

    def call(self, method: str, *given: Any) -> None:
        """Schedule a call of a method of the logger."""
        if not self._failed:
            self._calls.put((method, given))

    def close(self) -> None:
        """End the thread after the scheduled calls."""
        self._calls.put(None)

    def leave(self, text: str) -> None:
        """Log a text about the logger and show it to the user, once; schedule no more calls."""
        if not self._failed:
            self._failed = True
            text = f"{self.name} {text}"
            LOG.warning(text)
            self._notice(text)

    def run(self) -> None:
        """Call the logger until it is closed or fails."""
        try:
            while (call := self._calls.get()) is not None:
                self._logger(call[0], *call[1])
        except BaseException as error:  # Not even SystemExit may end the run.
            self._fail(error)
        try:
            self._logger("close")
        except BaseException as error:
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        text = str(error) if isinstance(error, LoggerError) else f"{type(error).__name__}: {error}"
        self.leave(f"failed ({' '.join(text.split())[:200]}); the run continues without it")
