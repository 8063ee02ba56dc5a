"""Events of a run as lines of text, so that another machine can follow and show them."""

import json
import os
from collections.abc import Callable
from functools import partial
from threading import RLock
from typing import Any, TextIO

from algorithms import Block
from raysim.watching.log import at_most_every
from raysim.watching.progress import Watcher

FOLLOWED = "RAYSIM_FOLLOWED"
"""Environment variable that is set if another machine follows the run."""

MARK = "::raysim:: "
"""Prefix of a line that holds an event."""

SECONDS = 0.2
"""Least seconds between two lines on blocks and rounds, which may come thousands of times a second."""

MOST = 2**53
"""Bound of the rounds and clients in an event."""

MOST_UPDATES = 10**6
"""Most client updates in an event."""


def is_followed() -> bool:
    """Return whether this process must write events as lines instead of showing them."""
    return FOLLOWED in os.environ


class RemoteWatcher(Watcher):
    """Writer of events as marked lines of JSON; of blocks and rounds, it writes the newest from time to time."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._lock = RLock()  # the writer of checkpoints and the loggers have notices, from threads of their own
        self._beside: Callable[[], str] = str
        self._said = ""
        self._updates = 0
        self._round: tuple[int, dict[str, float]] | None = None
        self._is_due = at_most_every(SECONDS)

    def stage(self, text: str) -> None:
        self._write_now("stage", text)

    def beside(self, current: Callable[[], str]) -> None:
        self._beside = current
        self._flush()

    def notice(self, text: str) -> None:
        self._write_now("notice", text)

    def begin(self, name: str, rounds: int, cohort: int, done: int = 0) -> None:
        self._write_now("begin", name, rounds, cohort, done)

    def block(self, block: Block) -> None:
        with self._lock:
            self._updates += len(block.clients)
        if self._is_due():
            self._flush()

    def round(self, round_number: int, metrics: dict[str, float]) -> None:
        with self._lock:
            self._round, self._updates = (round_number, metrics), 0
        if self._is_due():
            self._flush()

    def _flush(self) -> None:
        """Write the events held back, in their order, and the work beside the rounds if it is another by now."""
        with self._lock:
            if self._round is not None:
                self._write("round", *self._round)
            if self._updates:
                self._write("block", self._updates)
            self._round, self._updates = None, 0
            if (text := self._beside()) != self._said:
                self._said = text
                self._write("beside", text)

    def _write_now(self, *event: Any) -> None:
        with self._lock:
            self._flush()
            self._write(*event)

    def _write(self, *event: Any) -> None:
        print(MARK + json.dumps(event), file=self._stream, flush=True)


def replay(line: str, watcher: Watcher, rewrite: Callable[[str], str] = str) -> bool:
    """Pass the event of a line to a watcher, and return whether the line held one.

    Args:
        line: line of the run's output.
        watcher: receiver of the event.
        rewrite: function that adapts its text to this machine.
    """
    if not line.startswith(MARK):
        return False
    try:
        event = json.loads(line.removeprefix(MARK))
    except (ValueError, RecursionError):  # Another program's line may begin with the mark.
        return False
    match event:
        case ["stage", str(text)]:
            watcher.stage(rewrite(text))
        case ["notice", str(text)]:
            watcher.notice(rewrite(text))
        case ["beside", str(text)]:
            watcher.beside(partial(str, rewrite(text)))
        case ["begin", str(name), int(rounds), int(cohort), int(done)] if (
            0 <= done <= rounds < MOST and 0 < cohort < MOST
        ):
            watcher.begin(name, rounds, cohort, done)
        case ["block", int(updates)] if updates > 0:
            # A watcher only counts the clients.
            watcher.block(Block(0, tuple(range(min(updates, MOST_UPDATES))), 0))
        case ["round", int(round_number), dict(metrics)] if 0 < round_number < MOST:
            watcher.round(round_number, {name: float(value) for name, value in metrics.items() if _is_number(value)})
    return True


def _is_number(value: object) -> bool:
    return isinstance(value, float) or (isinstance(value, int) and abs(value) < MOST)
