"""One thread and one process per logger, so that no logger delays, ends or changes the run.

A process of its own shares no generator, setting or lock with the run.
"""

from __future__ import annotations

import os
import signal
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from multiprocessing import get_context
from multiprocessing.connection import Connection
from queue import SimpleQueue
from threading import Thread
from typing import Any

from raysim.common.log import LOG
from raysim.watching.loggers.logger import LoggedRun, Logger

FORK = get_context("fork")
"""A copy of this process, which has the logger's module whether it is a file, a script or a notebook."""

END_SECONDS = 1
"""Seconds that a process has to end after `close`."""

CLOSE_SECONDS = 60
"""Seconds that loggers get at the end of a run."""


class LoggerThreads:
    """Context of a run's loggers; on exit it waits until they are done or their time is up.

    Args:
        run: run to log.
        loggers: loggers by name, each for a process of its own.
        within: loggers by name that this process calls, because they share its state; they must not draw, and do not
            receive the rounds of earlier commands.
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
        if done and (threads := self._threads[: len(self._processes)]):
            for row in rows:
                _send(row, threads)

    def round(self, row: Mapping[str, Any]) -> None:
        """Report a written row of a round."""
        if self._threads:
            _send(row, self._threads)

    def end(self, summary: Mapping[str, float]) -> None:
        """Report the final metrics and totals of an algorithm."""
        self._call("end", summary)

    def _call(self, method: str, *given: Any) -> None:
        for thread in self._threads:
            thread.call(method, *given)


def _send(row: Mapping[str, Any], threads: Iterable[_LoggerThread]) -> None:
    """Report a row of a round to some loggers."""
    numbers = {name: float(value) for name, value in row.items() if isinstance(value, int | float)}
    number = int(numbers.pop("round"))
    for thread in threads:
        thread.call("round", number, numbers)


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


class LoggerError(Exception):
    """Error of a logger in its process, or the end of that process."""


class LoggerProcess:
    """Function that calls methods of a logger in a process of its own, and waits for each.

    Default generators belong to a process. A logger that drew in the run's process would take the draws of client
    updates that run at the same time. The process has a copy of the logger.
    """

    def __init__(self, logger: Logger) -> None:
        self._pipe, theirs = FORK.Pipe()
        self._process = FORK.Process(target=_serve, args=(logger, theirs, self._pipe), daemon=True)
        with warnings.catch_warnings():
            # Python 3.12 warns of locks that other threads hold; a logger that waits for one delays nobody.
            warnings.simplefilter("ignore", DeprecationWarning)
            self._process.start()
        theirs.close()

    def end_process(self) -> None:
        """Wait for the end of the process a moment; kill it if the logger hangs."""
        self._process.join(END_SECONDS)
        self._process.kill()
        self._process.join()

    def __call__(self, method: str, *given: Any) -> None:
        """Call a method of the logger; raise LoggerError if it fails."""
        try:
            self._pipe.send((method, [dict(each) if isinstance(each, Mapping) else each for each in given]))
            text = self._pipe.recv()
        except (EOFError, OSError):
            self._process.join(1)
            raise LoggerError(f"its process ended with the exit code {self._process.exitcode}") from None
        if text:
            raise LoggerError(text)


def _serve(logger: Logger, pipe: Connection, other: Connection) -> None:
    """Call the logger until `close`, or until the run's process ends; reply "" or the error to each call."""
    other.close()  # otherwise the pipe would not end with the run's process
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # they stop the run, whose last rounds the logger still gets
    if (torch := sys.modules.get("torch")) is not None:
        torch.set_num_threads(1)  # the threads of OpenMP do not outlive a fork
    calls: SimpleQueue[tuple[str, tuple[Any, ...]]] = SimpleQueue()
    Thread(target=_receive, args=(pipe, calls), daemon=True).start()
    method = ""
    while method != "close":
        method, given = calls.get()
        try:
            getattr(logger, method)(*given)
            text = ""
        except BaseException as error:  # not even SystemExit may end the process without a reply
            text = f"{type(error).__name__}: {error}"
        pipe.send(text)


def _receive(pipe: Connection, calls: SimpleQueue[tuple[str, tuple[Any, ...]]]) -> None:
    try:
        while True:
            calls.put(pipe.recv())
    except (EOFError, OSError):  # also if the logger hangs
        os._exit(0)
