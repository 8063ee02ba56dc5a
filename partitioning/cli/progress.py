"""A progress bar that appears after two seconds."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from partitioning.cli.console import Console
    from partitioning.store.writing import Progress

_SECONDS = 2.0


@contextmanager
def progress_bar(console: "Console", title: str = "partitioning") -> Iterator["Progress"]:
    """Yield a callback (done, total); on a terminal, a bar appears after two seconds."""
    from rich.progress import Progress as Bar

    bar = Bar(console=console, transient=True, disable=not console.is_terminal)
    task = bar.add_task(title, total=None)
    timer = threading.Timer(_SECONDS, bar.start)
    timer.daemon = True
    timer.start()
    try:
        yield lambda done, total: bar.update(task, completed=done, total=total)
    finally:
        timer.cancel()
        timer.join()
        bar.stop()
