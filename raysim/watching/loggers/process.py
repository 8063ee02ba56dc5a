"""A logger in a process of its own, which shares no generator, setting or lock with the run."""

import os
import signal
import sys
import warnings
from collections.abc import Mapping
from multiprocessing import get_context
from multiprocessing.connection import Connection
from queue import SimpleQueue
from threading import Thread
from typing import Any

from raysim.watching.loggers.logger import Logger

FORK = get_context("fork")
"""A copy of this process, which has the logger's module whether it is a file, a script or a notebook."""

END_SECONDS = 1
"""Seconds that a process has to end after `close`."""


class LoggerError(Exception):
    """Error of a logger in its process, or the end of that process."""


class LoggerProcess:
    """Function that calls methods of a logger in a process of its own, and waits for each.

    Default generators belong to a process. A logger that drew in the run's process would take the draws of client
    updates that run at the same time.

    Args:
        logger: logger, which is copied to the process.
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
