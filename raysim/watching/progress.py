"""Progress of a run for a person: current work, and a bar per algorithm."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from algorithms import Block
from raysim.watching.log import at_most_every

PATIENCE = (2, 5)
"""Seconds before the first report on a copy, and between two reports."""


class Watcher:
    """Receiver of a run's events; this base class ignores them."""

    def stage(self, text: str) -> None:
        """Receive the name of work that may take seconds."""

    def notice(self, text: str) -> None:
        """Receive a text for the user."""

    def line(self, text: str) -> None:
        """Receive a line of output from a run on another machine."""

    def begin(self, name: str, rounds: int, cohort: int) -> None:
        """Receive the start of an algorithm.

        Args:
            name: folder name of the algorithm.
            rounds: number of rounds.
            cohort: client updates per round.
        """

    def block(self, block: Block) -> None:
        """Receive a finished block of client updates."""

    def round(self, round_number: int, metrics: dict[str, float]) -> None:
        """Receive a finished round with the newest metrics."""


def copy_progress(stage: Callable[[str], object], what: str) -> Callable[[int, int], None]:
    """Return a function that takes bytes copied so far and in total, and reports a long copy from time to time.

    Args:
        stage: receiver of the reports.
        what: name of the work.
    """
    is_due = at_most_every(PATIENCE[1], first=PATIENCE[0])

    def report(done: int, total: int) -> None:
        if is_due():
            stage(f"{what}: {done / 1e6:,.0f} of {total / 1e6:,.0f} MB")

    return report


class LineWatcher(Watcher):
    """Writer of events as lines, for an output that is no terminal."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def stage(self, text: str) -> None:
        self._console.print(text)

    def notice(self, text: str) -> None:
        self._console.print(f"notice: {text}", soft_wrap=True)

    def line(self, text: str) -> None:
        self._console.print(text, soft_wrap=True, markup=False, highlight=False)

    def begin(self, name: str, rounds: int, cohort: int) -> None:
        updates = "1 client update" if cohort == 1 else f"{cohort} client updates"
        self._console.print(f"{name}: rounds 1 to {rounds}, {updates} each")


class BarWatcher(Watcher):
    """Live bars on the terminal."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._stage = progress.add_task("starting", total=None, note="")
        self._bar = self._stage
        self._rounds, self._updates, self._cohort = 0, 0, 1

    def stage(self, text: str) -> None:
        self._progress.update(self._stage, description=text, visible=True)

    def notice(self, text: str) -> None:
        self._progress.console.print(f"notice: {text}", soft_wrap=True)

    def line(self, text: str) -> None:
        self._progress.console.print(text, soft_wrap=True, markup=False, highlight=False)

    def begin(self, name: str, rounds: int, cohort: int) -> None:
        self._rounds, self._updates, self._cohort = 0, 0, cohort
        self._progress.update(self._stage, visible=False)
        self._bar = self._progress.add_task(name, total=rounds, note="")

    def block(self, block: Block) -> None:
        # Blocks of an evaluation follow the round's client updates and must not move the bar.
        self._updates = min(self._updates + len(block.clients), self._cohort)
        self._progress.update(self._bar, completed=self._rounds + self._updates / self._cohort)

    def round(self, round_number: int, metrics: dict[str, float]) -> None:
        self._rounds, self._updates = round_number, 0
        shown = next((f"{name} {value:.3f}" for name, value in metrics.items() if name.endswith("accuracy")), "")
        self._progress.update(self._bar, completed=round_number, note=shown.replace("_", " "))


@contextmanager
def display() -> Iterator[Watcher]:
    """Show a run on the standard error stream: live bars on a terminal, lines elsewhere."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield LineWatcher(console)
        return
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[note]}"),
    )
    with Progress(*columns, console=console, transient=True) as progress:
        yield BarWatcher(progress)
