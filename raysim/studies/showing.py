"""What a person sees while a study works: how far it is, and how its algorithms stand."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow.compute as pc
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from raysim.studies.read import Standing
from raysim.studies.tables import standings
from raysim.watching.progress import Watcher


class Board(Watcher):
    """Is told how a study goes; this one shows nothing."""

    def ended(self, text: str) -> None:
        """A trial has ended: which, and how."""

    def stand(self, standing: Standing, running: int) -> None:
        """How the study stands, and how many trials are under way."""


class OfTrial(Watcher):
    """What of a trial that runs in this process is shown: its notices.

    Args:
        watcher: shows them.
    """

    def __init__(self, watcher: Watcher) -> None:
        self._watcher = watcher

    def notice(self, text: str) -> None:
        self._watcher.notice(text)


class BoardLines(Board):
    """Says it line by line, where the output is no terminal."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._done, self._all = 0, 0
        self._chosen: set[tuple[str, str, str]] = set()

    def stage(self, text: str) -> None:
        self._console.print(text, soft_wrap=True, highlight=False)

    def notice(self, text: str) -> None:
        self._console.print(f"notice: {text}", soft_wrap=True, highlight=False)

    def ended(self, text: str) -> None:
        self._done += 1
        self._console.print(f"{self._done} of {self._all}  {text}", soft_wrap=True, highlight=False)

    def stand(self, standing: Standing, running: int) -> None:
        self._done, self._all = standing.trials.num_rows, sum(standing.planned.values())
        rows = standing.trials.filter(pc.field("chosen")).select(["dataset", "algorithm", "point"]).to_pylist()
        for key in dict.fromkeys(tuple(row.values()) for row in rows):
            if key not in self._chosen and key[2] != "{}":
                self._console.print("{}, {}: chosen {}".format(*key), soft_wrap=True, highlight=False)
            self._chosen.add(key)


class LiveBoard(Board):
    """Shows a live table on the terminal."""

    def __init__(self, live: Live) -> None:
        self._live = live

    def stage(self, text: str) -> None:
        self._live.update(Text(text))

    def notice(self, text: str) -> None:
        self._live.console.print(f"notice: {text}", soft_wrap=True)

    def stand(self, standing: Standing, running: int) -> None:
        done = standing.trials.num_rows
        left = sum(standing.planned.values()) - done - running
        line = f"trials: {done} done, {running} running, {left} left"
        self._live.update(Group(standings(standing), Text(line)))


@contextmanager
def board() -> Iterator[Board]:
    """What shows a study on the standard error stream: a live table on a terminal, lines elsewhere."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield BoardLines(console)
        return
    with Live(console=console, transient=True, refresh_per_second=4) as live:
        yield LiveBoard(live)
