"""What a person sees while a run works: what is being done, and a bar for each algorithm."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from algorithms import Block

PATIENCE = (2, 5)
"""Seconds until a person is told how much is copied, and those between two times."""


class Watcher:
    """Is told what happens; this one shows nothing."""

    def stage(self, text: str) -> None:
        """Something that may take seconds begins."""

    def notice(self, text: str) -> None:
        """Something that a person should know of."""

    def line(self, text: str) -> None:
        """Something else that a run on another machine has written."""

    def begin(self, name: str, rounds: int, cohort: int) -> None:
        """An algorithm begins, with so many visits a round."""

    def block(self, block: Block) -> None:
        """A block of visits is done."""

    def round(self, number: int, metrics: dict[str, float]) -> None:
        """A round is done."""


class Copying:
    """Tells how much of something large is copied, to whoever has waited for two seconds, and then from time to time.

    Args:
        stage: is told.
        what: is being done.
    """

    def __init__(self, stage: Callable[[str], object], what: str) -> None:
        self._stage, self._what = stage, what
        self._next = time.monotonic() + PATIENCE[0]

    def __call__(self, done: int, total: int) -> None:
        """Take note of the bytes copied so far, and of those of everything."""
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + PATIENCE[1]
            self._stage(f"{self._what}: {done / 1e6:,.0f} of {total / 1e6:,.0f} MB")


class Lines(Watcher):
    """Says it line by line, where the output is no terminal."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def stage(self, text: str) -> None:
        self._console.print(text)

    def notice(self, text: str) -> None:
        self._console.print(f"notice: {text}", soft_wrap=True)

    def line(self, text: str) -> None:
        self._console.print(text, soft_wrap=True, markup=False, highlight=False)

    def begin(self, name: str, rounds: int, cohort: int) -> None:
        each = "1 visit each" if cohort == 1 else f"{cohort} visits each"
        self._console.print(f"{name}: rounds 1 to {rounds}, {each}")


class Bars(Watcher):
    """Shows a live bar on the terminal."""

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
        # Blocks of an evaluation come after the round's visits and move nothing.
        self._updates = min(self._updates + len(block.clients), self._cohort)
        self._progress.update(self._bar, completed=self._rounds + self._updates / self._cohort)

    def round(self, number: int, metrics: dict[str, float]) -> None:
        self._rounds, self._updates = number, 0
        shown = next((f"{name} {value:.3f}" for name, value in metrics.items() if name.endswith("accuracy")), "")
        self._progress.update(self._bar, completed=number, note=shown.replace("_", " "))


@contextmanager
def display() -> Iterator[Watcher]:
    """What shows a run on the standard error stream: live bars on a terminal, lines elsewhere."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield Lines(console)
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
        yield Bars(progress)
