"""Options of a run beside its experiment file."""

from __future__ import annotations

from dataclasses import dataclass, field

from raysim.common.log import LOG
from raysim.simulation.place import Place
from raysim.simulation.stop import Stop
from raysim.watching.progress import Watcher
from raysim.watching.stopwatch import Stopwatch


@dataclass(frozen=True)
class RunOptions(Place):
    """Options of a run, as `raysim.run` takes them, and the stages of its command; none changes the result."""

    watcher: Watcher = field(default_factory=Watcher)
    stop: Stop = field(default_factory=Stop)
    stopwatch: Stopwatch = field(default_factory=Stopwatch)

    def tell(self, text: str) -> None:
        """Show a text to the user, and log it."""
        LOG.info("%s", text)
        self.watcher.notice(text)
