"""Progress of a run for a person, on a terminal or in a notebook: current work, and a bar per algorithm."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from html import escape
from itertools import pairwise
from statistics import median
from time import monotonic
from typing import TYPE_CHECKING, Any

import rich.console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    Task,
    TextColumn,
    TimeElapsedColumn,
)
from rich.text import Text

from partitioning.cli.console import Console
from partitioning.common.text import caption, printable
from raysim.common.surface import ipython_shell
from raysim.common.units import human_seconds
from raysim.report.words import in_words
from raysim.watching.log import at_most_every

if TYPE_CHECKING:
    from algorithms import Block

PATIENCE = (2, 5)
"""Seconds before the first report on a copy, and between two reports."""

PERIOD = 10
"""Seconds between two lines on the rounds, for an output that is no terminal."""

WINDOW = 32
"""Newest rounds that an estimate of the time left is made from."""

LEAST = (3, 2.0)
"""Rounds and seconds before the first estimate of the time left."""

REFRESH = 0.25
"""Least number of seconds between two updates of the output."""

MOST_BARS = 50
"""Most bars on the terminal: the newest algorithms have one."""


class Watcher:
    """Receiver of a run's events; this base class ignores them."""

    def stage(self, text: str) -> None:
        """Receive the name of work that may take seconds."""

    def beside(self, current: Callable[[], str]) -> None:
        """Receive a function that names the work beside the rounds; "" once it has ended."""
        if text := current():
            self.stage(text)

    def notice(self, text: str) -> None:
        """Receive a text for the user."""

    def line(self, text: str) -> None:
        """Receive a line of output from a run on another machine."""

    def begin(self, name: str, rounds: int, cohort: int, done: int = 0) -> None:
        """Receive the start of an algorithm.

        Args:
            name: folder name of the algorithm.
            rounds: number of rounds.
            cohort: client updates per round.
            done: rounds that an earlier command ran.
        """

    def block(self, block: Block) -> None:
        """Receive a finished block of client updates."""

    def round(self, round_number: int, metrics: dict[str, float]) -> None:
        """Receive a finished round with the newest metrics."""

    def end(self) -> None:
        """Receive the end of the run; its report is written."""


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


class Remaining:
    """Estimate of the seconds left, from the newest rounds.

    There is none before three rounds have ended and two seconds have passed. The first round after the start also
    loads libraries, data and actors, so it does not count. A round is taken to last as long as the median of the
    newest ones.

    Args:
        rounds: number of the last round.
    """

    def __init__(self, rounds: int) -> None:
        self._rounds, self._since = rounds, monotonic()
        self._ends: deque[tuple[int, float]] = deque(maxlen=WINDOW + 1)

    def round(self, number: int) -> None:
        """Record the end of a round; a round that is run again replaces its first run and the later ones."""
        while self._ends and self._ends[-1][0] >= number:
            self._ends.pop()
        self._ends.append((number, monotonic()))

    def seconds(self) -> float | None:
        """Return the seconds left; None while too few rounds of this command have ended."""
        if len(self._ends) < LEAST[0] or self._ends[-1][1] - self._since < LEAST[1]:
            return None
        last, until = self._ends[-1]
        per_round = median((end - begin) / (later - n) for (n, begin), (later, end) in pairwise(self._ends))
        left = self._rounds - last
        # A round that takes longer than those before it still has the later ones after it.
        return max(per_round * left - (monotonic() - until), per_round * max(0, left - 1))


class LineWatcher(Watcher):
    """Writer of events as lines, for an output that is no terminal."""

    def __init__(self, console: rich.console.Console) -> None:
        self._console = console
        self._is_due = at_most_every(PERIOD, first=PERIOD)
        self._beside: Callable[[], str] = str
        self._said = ""
        self._name, self._rounds, self._since, self._remaining = "", 0, monotonic(), Remaining(0)

    def stage(self, text: str) -> None:
        self._console.print(text)

    def beside(self, current: Callable[[], str]) -> None:
        self._beside = current
        self._show_what_is_beside()

    def notice(self, text: str) -> None:
        self._console.print(f"notice: {text}", soft_wrap=True)

    def line(self, text: str) -> None:
        self._console.print(text, soft_wrap=True, highlight=False)

    def begin(self, name: str, rounds: int, cohort: int, done: int = 0) -> None:
        self._name, self._rounds, self._since, self._remaining = name, rounds, monotonic(), Remaining(rounds)
        updates = "1 client update" if cohort == 1 else f"{cohort} client updates"
        what = f"rounds {done + 1} to {rounds}, {updates} each" if rounds > done else "no rounds are left"
        self._console.print(f"{name}: {what if rounds else 'no rounds, the initial model alone'}")

    def block(self, block: Block) -> None:
        self._show_what_is_beside()

    def round(self, round_number: int, metrics: dict[str, float]) -> None:
        self._remaining.round(round_number)
        if self._is_due():
            place = f"{self._name} {round_number}/{self._rounds}"
            elapsed = f"{_duration(monotonic() - self._since)} elapsed"
            times = ", ".join(filter(None, (elapsed, _left(self._remaining))))
            self._console.print("  ".join(filter(None, (place, _accuracy(metrics), times))), soft_wrap=True)

    def _show_what_is_beside(self) -> None:
        text = self._beside()
        if text and text != self._said:
            self._said = text
            self.stage(text)


class BarWatcher(LineWatcher):
    """Live bars on the terminal, below the lines of notices and of output."""

    def __init__(self, progress: Progress) -> None:
        super().__init__(progress.console)
        self._progress = progress
        self._stage = progress.add_task("starting", total=None, note="", remaining=self._remaining)
        self._bar = self._stage
        self._rounds, self._updates, self._cohort = 0, 0, 1

    def stage(self, text: str) -> None:
        self._progress.update(self._stage, description=caption(text), visible=True)

    def begin(self, name: str, rounds: int, cohort: int, done: int = 0) -> None:
        self._rounds, self._updates, self._cohort = done, 0, cohort
        self._show_what_is_beside()
        for old in self._progress.task_ids[1:-MOST_BARS]:
            self._progress.remove_task(old)
        self._remaining = Remaining(rounds)
        self._bar = self._progress.add_task(
            caption(name), total=rounds, completed=done, note="", remaining=self._remaining
        )

    def block(self, block: Block) -> None:
        # Blocks of an evaluation follow the round's client updates and must not move the bar.
        self._updates = min(self._updates + len(block.clients), self._cohort)
        self._progress.update(self._bar, completed=self._rounds + self._updates / self._cohort)
        self._show_what_is_beside()

    def round(self, round_number: int, metrics: dict[str, float]) -> None:
        self._rounds, self._updates = round_number, 0
        self._remaining.round(round_number)
        self._progress.update(self._bar, completed=round_number, note=caption(_accuracy(metrics)))

    def _show_what_is_beside(self) -> None:
        text = self._beside()
        self._progress.update(self._stage, description=caption(text), visible=bool(text))


class RemainingColumn(ProgressColumn):
    """Column of the estimated time that an algorithm's remaining rounds take."""

    def render(self, task: Task) -> Text:
        return Text("" if task.finished else _left(task.fields["remaining"]), style="progress.remaining")


def _left(remaining: Remaining) -> str:
    """Return the estimated time left for a reader; "" without an estimate."""
    seconds = remaining.seconds()
    return "" if seconds is None else f"about {_duration(seconds)} left"


def _accuracy(metrics: dict[str, float]) -> str:
    """Return the first accuracy with its name; "" without one."""
    return next((f"{in_words(name)} {value:.3f}" for name, value in metrics.items() if name.endswith("accuracy")), "")


def _duration(seconds: float) -> str:
    """Return a duration as 0:07, 12:34 or 1:02:03."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


@contextmanager
def display() -> Iterator[Watcher]:
    """Show a run on the standard error stream: live bars on a terminal, lines elsewhere."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield LineWatcher(console)
        return
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        RemainingColumn(),
        TextColumn("{task.fields[note]}", markup=False),
    )
    with Progress(*columns, console=console, transient=True) as progress:
        yield BarWatcher(progress)


def default_watcher() -> Watcher:
    """Return the watcher of a run from Python: a bar in a notebook, else nothing."""
    return NotebookWatcher() if hasattr(ipython_shell(), "kernel") else Watcher()


class NotebookWatcher(Watcher):
    """Bars in an output of the running cell."""

    def __init__(self) -> None:
        from IPython.display import HTML, display

        self._html: Any = HTML
        self._lines: list[str] = []
        self._stage, self._bar, self._shown = "", "", 0.0
        self._name, self._rounds, self._done, self._updates, self._cohort = "", 0, 0, 0, 1
        self._note, self._began, self._remaining = "", monotonic(), Remaining(0)
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
        self._began, self._remaining = monotonic(), Remaining(rounds)
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
        elapsed = monotonic() - self._began
        left = self._remaining.seconds()
        times = f"{human_seconds(elapsed)} elapsed" + (f", about {human_seconds(left)} left" if left else "")
        return (
            f'{escape(caption(self._name))} <progress max="{self._rounds or 1}" value="{done:g}"></progress> '
            f"{self._done}/{self._rounds} {escape(caption(self._note.replace('_', ' ')))} {times}"
        )

    def _show(self, force: bool = False) -> None:
        now = monotonic()
        if force or now - self._shown > REFRESH:
            self._shown = now
            self._handle.update(self._html("<br>".join(filter(None, [*self._lines, self._bar, self._stage]))))
