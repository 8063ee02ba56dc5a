"""Telling what a run does in lines of text, for whoever follows it from another machine and shows it there."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TextIO

from algorithms import Block
from raysim.watching.progress import Watcher

FOLLOWED = "RAYSIM_FOLLOWED"
"""A variable of the environment: where it is set, a run is followed, and tells what it does."""

MARK = "::raysim:: "
"""What a line begins with that tells something."""

SECONDS = 0.2
"""Between two lines about visits and rounds, which may be thousands a second."""


def is_followed() -> bool:
    """Whether this process is to tell what it does, instead of showing it."""
    return FOLLOWED in os.environ


class Telling(Watcher):
    """Writes a marked line of JSON for what happens; of visits and rounds, the newest from time to time."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._updates = 0
        self._round: tuple[int, dict[str, float]] | None = None
        self._next = 0.0

    def stage(self, text: str) -> None:
        self._tell("stage", text)

    def notice(self, text: str) -> None:
        self._tell("notice", text)

    def begin(self, name: str, rounds: int, cohort: int) -> None:
        self._tell("begin", name, rounds, cohort)

    def block(self, block: Block) -> None:
        self._updates += len(block.clients)
        self._tell_in_time()

    def round(self, number: int, metrics: dict[str, float]) -> None:
        self._round, self._updates = (number, metrics), 0
        self._tell_in_time()

    def _tell_in_time(self) -> None:
        if time.monotonic() >= self._next:
            self._tell_progress()
            self._next = time.monotonic() + SECONDS

    def _tell_progress(self) -> None:
        """Tell what was held back, in the order in which it happened."""
        if self._round is not None:
            self._write("round", *self._round)
        if self._updates:
            self._write("block", self._updates)
        self._round, self._updates = None, 0

    def _tell(self, *what: Any) -> None:
        self._tell_progress()
        self._write(*what)

    def _write(self, *what: Any) -> None:
        print(MARK + json.dumps(what), file=self._stream, flush=True)


@contextmanager
def telling() -> Iterator[Watcher]:
    """What tells what a run does on the standard output stream."""
    yield Telling(sys.stdout)


def replay(line: str, watcher: Watcher, said: Callable[[str], str] = str) -> bool:
    """Let a watcher know what a line tells, its texts as `said` has them; False where it is any other line."""
    if not line.startswith(MARK):
        return False
    try:
        what = json.loads(line.removeprefix(MARK))
    except ValueError:  # somebody else's line, by chance
        return False
    match what:
        case ["stage", str(text)]:
            watcher.stage(said(text))
        case ["notice", str(text)]:
            watcher.notice(said(text))
        case ["begin", str(name), int(rounds), int(cohort)]:
            watcher.begin(name, rounds, cohort)
        case ["block", int(updates)]:
            watcher.block(Block(0, tuple(range(updates)), 0))
        case ["round", int(number), dict(metrics)]:
            watcher.round(number, metrics)
    return True
