"""Progress of a run in a notebook: one output that follows the rounds, with elapsed and estimated time."""

import sys
import time
from collections.abc import Callable
from html import escape
from typing import Any

from algorithms import Block
from partitioning.common.text import caption, printable
from raysim.common.units import human_seconds
from raysim.watching.progress import Remaining, Watcher

REFRESH = 0.25
"""Least number of seconds between two updates of the output."""


def in_notebook() -> bool:
    """Return whether this process is the kernel of a notebook."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    return shell is not None and hasattr(shell, "kernel")


def default_watcher() -> Watcher:
    """Return the watcher of a run from Python: a bar in a notebook, else nothing."""
    return NotebookWatcher() if in_notebook() else Watcher()


class NotebookWatcher(Watcher):
    """Bars in an output of the running cell."""

    def __init__(self) -> None:
        from IPython.display import HTML, display

        self._html: Any = HTML
        self._lines: list[str] = []
        self._stage, self._bar, self._shown = "", "", 0.0
        self._name, self._rounds, self._done, self._updates, self._cohort = "", 0, 0, 0, 1
        self._note, self._began, self._remaining = "", time.monotonic(), Remaining(0)
        self._beside: Callable[[], str] = str
        self._handle: Any = display(HTML(""), display_id=True)

    def stage(self, text: str) -> None:
        self._stage = escape(printable(text))
        self._show(force=True)

    def beside(self, current: Callable[[], str]) -> None:
        self._beside = current
        self.stage(current())

    def notice(self, text: str) -> None:
        self._lines.append(f"notice: {escape(printable(text))}")
        self._show(force=True)

    def begin(self, name: str, rounds: int, cohort: int, done: int = 0) -> None:
        if self._name:
            self._lines.append(self._progress())
        self._name, self._rounds, self._cohort = name, rounds, cohort
        self._done, self._updates, self._note = done, 0, ""
        self._began, self._remaining = time.monotonic(), Remaining(rounds)
        self._stage, self._bar = "", self._progress()
        self._show(force=True)

    def block(self, block: Block) -> None:
        # Blocks of an evaluation follow the round's client updates and must not move the bar.
        self._updates = min(self._updates + len(block.clients), self._cohort)
        self._stage, self._bar = escape(self._beside()), self._progress()
        self._show()

    def round(self, round_number: int, metrics: dict[str, float]) -> None:
        self._done, self._updates = round_number, 0
        self._remaining.round(round_number)
        self._note = next((f"{name} {value:.3f}" for name, value in metrics.items() if name.endswith("accuracy")), "")
        self._bar = self._progress()
        self._show(force=round_number == self._rounds)

    def end(self) -> None:
        self._stage = ""
        self._show(force=True)

    def _progress(self) -> str:
        done = min(self._done + self._updates / self._cohort, self._rounds)
        elapsed = time.monotonic() - self._began
        left = self._remaining.seconds()
        times = f"{human_seconds(elapsed)} elapsed" + (f", about {human_seconds(left)} left" if left else "")
        return (
            f'{escape(caption(self._name))} <progress max="{self._rounds or 1}" value="{done:g}"></progress> '
            f"{self._done}/{self._rounds} {escape(caption(self._note.replace('_', ' ')))} {times}"
        )

    def _show(self, force: bool = False) -> None:
        now = time.monotonic()
        if force or now - self._shown > REFRESH:
            self._shown = now
            self._handle.update(self._html("<br>".join(filter(None, [*self._lines, self._bar, self._stage]))))
