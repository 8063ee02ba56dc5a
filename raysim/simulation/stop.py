"""Stopping a run by a signal, between two rounds."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

ASKED = b"stopping after this round; once more stops now\n"


class Stop:
    """Whether somebody has asked a run to stop: while rounds run it does so after the one that is under way."""

    def __init__(self) -> None:
        self.asked = False
        self.signal = signal.SIGINT
        self._in_rounds = False

    @contextmanager
    def between_rounds(self) -> Iterator[None]:
        """Within, whoever runs the rounds looks after each of them whether it was asked to stop."""
        self._in_rounds = True
        try:
            yield
        finally:
            self._in_rounds = False

    def ask(self, number: int, frame: FrameType | None) -> None:
        """Handle a signal: the second one, or one outside the rounds, stops at once."""
        self.signal = signal.Signals(number)
        if self.asked or not self._in_rounds:
            raise KeyboardInterrupt
        self.asked = True
        # Not through Python's streams: a handler may have come in the middle of a write to them.
        os.write(sys.__stderr__.fileno() if sys.__stderr__ else 2, ASKED)


@contextmanager
def stopped_by_signals() -> Iterator[Stop]:
    """Within, Ctrl-C and SIGTERM ask the run to stop."""
    stop = Stop()
    before = {number: signal.signal(number, stop.ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
