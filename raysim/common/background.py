"""Work that nobody waits for, done in a thread of its own."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import BoundedSemaphore
from typing import Any

BEHIND = 8
"""Calls that may wait for their turn. Who makes more of them is held up, so that memory stays bounded."""


class Background:
    """Calls a function in a thread of its own, in order.

    Its first error ends it: nothing is called any more, and every later use raises that error.

    Args:
        function: what to call.
    """

    def __init__(self, function: Callable[..., None]) -> None:
        self._function = function
        # Unlike a thread of our own, an executor's does what waits even where Python exits without a `close`.
        self._thread = ThreadPoolExecutor(1, "background")
        self._room = BoundedSemaphore(BEHIND)
        self._error: BaseException | None = None

    def __call__(self, *given: Any) -> None:
        """Have the function called; waits only while too many calls wait already."""
        self._check()
        self._room.acquire()
        self._thread.submit(self._call, *given)

    def close(self) -> None:
        """Wait for every call."""
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
