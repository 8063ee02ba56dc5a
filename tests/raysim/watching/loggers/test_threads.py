"""Calls of loggers, each in a thread of its own."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from raysim.config.tables import WatchTable
from raysim.watching.loggers.logger import LoggedRun
from raysim.watching.loggers.threads import LoggerThreads


class Keeps:
    """Logger that keeps the rounds that it receives."""

    def __init__(self) -> None:
        self.rounds = list[int]()

    def round(self, number: int, row: dict[str, float]) -> None:
        """Keep a round."""
        self.rounds.append(number)

    def begin(self, *given: Any) -> None:
        """Do nothing."""

    algorithm = end = close = begin


def test_rounds_of_earlier_commands_are_not_read_for_loggers_of_this_process(tmp_path: Path) -> None:
    read = list[int]()

    def rows() -> Iterator[dict[str, float]]:
        for number in (1, 2):
            read.append(number)
            yield {"round": number}

    within: Any = Keeps()
    with LoggerThreads(LoggedRun("run", tmp_path, WatchTable()), {}, {"within": within}, print) as threads:
        threads.begin("fedavg", {}, 2, rows())
        threads.round({"round": 3})
    assert not read and within.rounds == [3]
    of_process: Any = Keeps()
    with LoggerThreads(
        LoggedRun("run", tmp_path, WatchTable()), {"other": of_process}, {"within": within}, print
    ) as threads:
        threads.begin("fedavg", {}, 2, rows())
    assert read == [1, 2] and within.rounds == [3]
