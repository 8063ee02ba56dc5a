"""Stop of a run by a signal, between two rounds."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

NOTICE = b"stopping after this round; send the signal again to stop now\n"


class Stop:
    """Request to stop a run after its current round."""

    def __init__(self) -> None:
        self.asked = False
        self.signal = signal.SIGINT
        self._in_rounds = False

    @contextmanager
    def between_rounds(self) -> Iterator[None]:
        """Defer a first request to the end of the current round."""
        self._in_rounds = True
        try:
            yield
        finally:
            self._in_rounds = False

    def ask(self, signal_number: int, frame: FrameType | None) -> None:
        """Handle a signal: a second one, or one outside the rounds, stops at once."""
        self.signal = signal.Signals(signal_number)
        if self.asked or not self._in_rounds:
            raise KeyboardInterrupt
        self.asked = True
        # Write past Python's streams: the signal may have interrupted a write to them.
        with suppress(OSError, ValueError):  # the terminal may be gone, and the stream closed
            os.write(sys.__stderr__.fileno() if sys.__stderr__ else 2, NOTICE)


@contextmanager
def stopped_by_signals() -> Iterator[Stop]:
    """Turn Ctrl-C and SIGTERM into requests to stop."""
    stop = Stop()
    before = {each: signal.signal(each, stop.ask) for each in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
