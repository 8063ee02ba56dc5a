"""What a run tells in lines arrives at another watcher as it happened."""

import io
from dataclasses import dataclass, field
from threading import Thread
from typing import Any

from rich.progress import Progress

from algorithms import Block
from partitioning.cli.console import Console
from raysim.watching import remote
from raysim.watching.progress import BarWatcher, Watcher
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


def test_a_follower_learns_when_ray_starts_and_when_it_runs() -> None:
    stream, beside = io.StringIO(), ["Ray starts if this takes long"]
    watcher = RemoteWatcher(stream)
    watcher.beside(lambda: beside[-1])
    for text in ("Ray starts if this takes long", "starting Ray", "starting Ray", ""):
        beside.append(text)
        watcher.notice("a block")
    shown = [each for each in replayed(stream) if each[0] == "stage"]
    assert shown == [("stage", "Ray starts if this takes long"), ("stage", "starting Ray")]


def test_the_start_of_ray_stays_on_a_followers_screen_until_it_is_over() -> None:
    stream, beside = io.StringIO(), ["starting Ray"]
    told, bars = RemoteWatcher(stream), Progress(console=Console(file=io.StringIO()))
    shown, place = BarWatcher(bars), 0

    def follow() -> bool:
        nonlocal place
        lines = stream.getvalue().splitlines()
        assert all(replay(line, shown) for line in lines[place:])
        place = len(lines)
        return bars.tasks[0].visible and bars.tasks[0].description == "starting Ray"

    told.beside(lambda: beside[-1])
    told.begin("fedavg", 8, 4)
    told.block(Block(0, (1, 2), 2))
    told.notice("half a round")
    assert follow() and bars.tasks[-1].completed == 0.5
    beside.append("")
    told.notice("Ray runs")
    assert not follow() and not bars.tasks[0].visible


def test_lines_of_several_threads_stay_whole() -> None:
    class Slow(io.StringIO):
        def write(self, text: str) -> int:
            written = super().write(text)
            if other.ident is None:
                other.start()
                other.join(0.2)
            return written

    stream = Slow()
    watcher = RemoteWatcher(stream)
    other = Thread(target=watcher.notice, args=("of another thread",))
    watcher.notice("of the run")
    other.join()
    assert replayed(stream) == [("notice", "of the run"), ("notice", "of another thread")]
