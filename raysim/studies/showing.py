"""Progress of a study on the terminal."""

from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow.compute as pc
import rich.console
from rich.console import Group
from rich.live import Live

from partitioning.cli.console import Console
from raysim.studies.course import StudyProgress
from raysim.studies.tables import progress_table
from raysim.watching.progress import Watcher


class Board(Watcher):
    """Observer of a study; this one shows nothing.

    A board is also the watcher of the trials that run in this process. It ignores their stages and shows their notices.
    """

    def phase(self, text: str) -> None:
        """Receive the name of a phase of the study that may take seconds."""

    def ended(self, text: str) -> None:
        """Receive a line about a trial that has ended."""

    def update(self, progress: StudyProgress, running: int) -> None:
        """Receive the study's progress and the number of trials under way."""


class PrintingBoard(Board):
    """Board that prints each notice once, because the trials repeat those about their common code and data."""

    def __init__(self, console: rich.console.Console) -> None:
        self._console = console
        self._told: set[str] = set()

    def notice(self, text: str) -> None:
        if text not in self._told:
            self._told.add(text)
            self._print(f"notice: {text}")

    def _print(self, text: str) -> None:
        self._console.print(text, soft_wrap=True, highlight=False)


class BoardLines(PrintingBoard):
    """Board that prints lines, for an output that is no terminal."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._done, self._all = 0, 0
        self._chosen: set[tuple[str, str, str]] = set()

    def phase(self, text: str) -> None:
        self._print(text)

    def ended(self, text: str) -> None:
        self._done += 1
        self._print(f"{self._done} of {self._all}  {text}")

    def update(self, progress: StudyProgress, running: int) -> None:
        self._done, self._all = progress.trials.num_rows, sum(progress.planned.values())
        rows = progress.trials.filter(pc.field("chosen")).select(["dataset", "algorithm", "point"]).to_pylist()
        for key in dict.fromkeys(tuple(row.values()) for row in rows):
            if key not in self._chosen and key[2] != "{}":
                self._print("{}, {}: chosen {}".format(*key))
            self._chosen.add(key)


class LiveBoard(PrintingBoard):
    """Board with a live table on the terminal."""

    def __init__(self, live: Live) -> None:
        super().__init__(live.console)
        self._live = live

    def phase(self, text: str) -> None:
        self._live.update(text)

    def update(self, progress: StudyProgress, running: int) -> None:
        done = progress.trials.num_rows
        left = sum(progress.planned.values()) - done - running
        line = f"trials: {done} done, {running} running, {left} left"
        self._live.update(Group(progress_table(progress), line))


@contextmanager
def board() -> Iterator[Board]:
    """Yield the board for the standard error stream: a live table on a terminal, else lines."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield BoardLines(console)
        return
    with Live(console=console, transient=True, refresh_per_second=4) as live:
        yield LiveBoard(live)
