"""Rich's console for text from outside, and its progress bar; every console of partitioning and raysim is one."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import rich.console
from rich.text import Text

from partitioning.common.text import printable

if TYPE_CHECKING:
    from partitioning.store.writing import Progress

_SECONDS = 2.0  # before a bar appears


class Console(rich.console.Console):
    """Console that shows a string literally: it is no markup, names no emoji, and has no control characters.

    Rich passes every string through `render_str`: printed lines, cells, headings and titles.
    """

    def render_str(self, text: str, **options: Any) -> Text:
        return super().render_str(printable(text), **{**options, "markup": False, "emoji": False})


@contextmanager
def progress_bar(title: str) -> Iterator["Progress"]:
    """Yield a callback (done, total); on a terminal, a bar appears on stderr after two seconds."""
    from rich.progress import Progress as Bar

    console = Console(stderr=True)
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
