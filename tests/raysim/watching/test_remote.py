"""What a run tells in lines arrives at another watcher as it happened."""

import io
from dataclasses import dataclass, field
from typing import Any

from algorithms import Block
from raysim.watching import remote
from raysim.watching.progress import Watcher
from raysim.watching.remote import RemoteWatcher, replay


@dataclass
class Recorder(Watcher):
    seen: list[tuple[Any, ...]] = field(default_factory=list)

    def stage(self, text: str) -> None:
        self.seen.append(("stage", text))

    def notice(self, text: str) -> None:
        self.seen.append(("notice", text))

    def begin(self, name: str, rounds: int, cohort: int, done: int = 0) -> None:
        self.seen.append(("begin", name, rounds, cohort))

    def block(self, block: Block) -> None:
        self.seen.append(("block", len(block.clients)))

    def round(self, round_number: int, metrics: dict[str, float]) -> None:
        self.seen.append(("round", round_number, metrics))


def replayed(stream: io.StringIO) -> list[tuple[Any, ...]]:
    recorder = Recorder()
    assert all(replay(line, recorder) for line in stream.getvalue().splitlines())
    return recorder.seen


def test_what_happens_is_told_in_order() -> None:
    stream = io.StringIO()
    watcher = RemoteWatcher(stream)
    watcher.stage("reading")
    watcher.begin("fedavg", 3, 4)
    watcher.block(Block(0, (3, 5), 10))
    watcher.notice("two\nlines")
    watcher.round(1, {"accuracy": 0.5})
    watcher.stage("writing")
    assert replayed(stream) == [
        ("stage", "reading"),
        ("begin", "fedavg", 3, 4),
        ("block", 2),
        ("notice", "two\nlines"),
        ("round", 1, {"accuracy": 0.5}),
        ("stage", "writing"),
    ]


def test_thousands_of_rounds_are_few_lines_and_the_last_is_among_them() -> None:
    stream = io.StringIO()
    watcher = RemoteWatcher(stream)
    for number in range(1, 5001):
        watcher.block(Block(0, (1,), 1))
        watcher.round(number, {})
    watcher.stage("writing the report")
    seen = replayed(stream)
    assert len(seen) < 5000 * remote.SECONDS and seen[-2:] == [("round", 5000, {}), ("stage", "writing the report")]


def test_other_lines_are_not_taken() -> None:
    assert not replay("Traceback (most recent call last):", Recorder())
    assert not replay(f"{remote.MARK}of my own", Recorder())
