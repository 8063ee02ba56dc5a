"""What a person sees while a run works: what is being done, and a bar for each algorithm."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from algorithms import Block


class Watcher:
    """Is told what happens; this one shows nothing."""

    def stage(self, text: str) -> None:
        """Something that may take seconds begins."""

    def begin(self, name: str, rounds: int, cohort: int) -> None:
        """An algorithm begins, with so many visits a round."""

    def block(self, block: Block) -> None:
        """A block of visits is done."""

    def round(self, number: int, metrics: dict[str, float]) -> None:
        """A round is done."""


class Bars(Watcher):
    """Shows a live bar on the terminal."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._stage = progress.add_task("starting", total=None, note="")
        self._bar = self._stage
        self._rounds, self._visits, self._cohort = 0, 0, 1

    def stage(self, text: str) -> None:
        self._progress.update(self._stage, description=text, visible=True)
        # Where the output is no terminal there is no bar to see: a line says it.
        if not self._progress.console.is_terminal:
            self._progress.console.print(text)

    def begin(self, name: str, rounds: int, cohort: int) -> None:
        self._cohort = cohort
        self._progress.update(self._stage, visible=False)
        self._rounds = self._visits = 0
        self._bar = self._progress.add_task(name, total=rounds, note="")
        if not self._progress.console.is_terminal:
            self._progress.console.print(f"{name}: {rounds} rounds")

    def block(self, block: Block) -> None:
        # Blocks of an evaluation come after the round's visits and move nothing.
        self._visits = min(self._visits + len(block.clients), self._cohort)
        self._progress.update(self._bar, completed=self._rounds + self._visits / self._cohort)

    def round(self, number: int, metrics: dict[str, float]) -> None:
        self._rounds, self._visits = number, 0
        shown = next((f"{name} {value:.3f}" for name, value in metrics.items() if name.endswith("accuracy")), None)
        self._progress.update(self._bar, completed=number, note=(shown or "").replace("_", " "))


@contextmanager
def bars() -> Iterator[Watcher]:
    """A live display on the standard error stream."""
    console = Console(stderr=True)
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
