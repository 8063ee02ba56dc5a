"""Background work in a thread of its own."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import BoundedSemaphore
from typing import Any

MAX_WAITING = 8
"""Calls that may wait for their turn. A caller with more has to wait, which bounds the memory."""


class Background:
    """Thread that calls a function, in order.

    An error ends it: it makes no further calls, and every later use raises that error.

    Args:
        function: function to call.
    """

    def __init__(self, function: Callable[..., None]) -> None:
        self._function = function
        # Unlike a plain thread, an executor completes waiting calls even if Python exits without `close`.
        self._thread = ThreadPoolExecutor(1, "background")
        self._room = BoundedSemaphore(MAX_WAITING)
        self._error: BaseException | None = None

    def __call__(self, *given: Any) -> None:
        """Queue a call; wait only if too many calls wait already."""
        self._check()
        self._room.acquire()
        self._thread.submit(self._call, *given)

    def close(self) -> None:
        """Wait for all calls."""
        self._thread.shutdown()
        self._check()

    def _call(self, *given: Any) -> None:
        try:
            if self._error is None:
                self._function(*given)
        except BaseException as error:
            self._error = error
        finally:
            self._room.release()

    def _check(self) -> None:
        if self._error is not None:
            raise self._error
