"""Progress for a person: lines for an output that is no terminal, bars for one that is."""

import io

import pytest
from rich.progress import Progress

from algorithms import Block
from partitioning.cli.console import Console
from raysim.watching import progress
from raysim.watching.progress import BarWatcher, LineWatcher, RemainingColumn


def lines(monkeypatch: pytest.MonkeyPatch, period: float, done: int) -> list[str]:
    monkeypatch.setattr(progress, "PERIOD", period)
    out = io.StringIO()
    watcher = LineWatcher(Console(file=out, width=100))
    watcher.begin("fedavg", 8, 4, done)
    for number in range(done + 1, 9):
        watcher.round(number, {"loss": 1.0, "test_accuracy": 0.25})
    return out.getvalue().splitlines()


def test_rounds_are_told_from_time_to_time_with_the_times(monkeypatch: pytest.MonkeyPatch) -> None:
    first, *rounds = lines(monkeypatch, 0, 0)
    assert first == "fedavg: rounds 1 to 8, 4 client updates each"
    assert rounds[0] == "fedavg 1/8  accuracy, global test set 0.250  0:00 elapsed"
    assert rounds[2] == "fedavg 3/8  accuracy, global test set 0.250  0:00 elapsed" and len(rounds) == 8
    monkeypatch.setattr(progress, "LEAST", (3, 0.0))
    assert lines(monkeypatch, 0, 0)[3] == "fedavg 3/8  accuracy, global test set 0.250  0:00 elapsed, about 0:00 left"
    assert len(lines(monkeypatch, 3600, 0)) == 1


def test_a_resumed_algorithm_begins_where_it_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    first, *rounds = lines(monkeypatch, 0, 6)
    assert first == "fedavg: rounds 7 to 8, 4 client updates each" and len(rounds) == 2


def test_a_bar_has_no_time_left_before_the_third_round_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "LEAST", (3, 0.0))
    bars = Progress(RemainingColumn(), console=Console(file=io.StringIO()))
    watcher = BarWatcher(bars)
    watcher.begin("fedavg", 8, 4)
    (column,), bar = bars.columns, bars.tasks[-1]
    texts = []
    for number in (1, 2, 3, 8):
        watcher.block(Block(0, (1, 2), 2))
        watcher.round(number, {})
        texts.append(column(bar).plain)
    assert texts == ["", "", "about 0:00 left", ""]


@pytest.mark.parametrize(("seconds", "text"), [(0.4, "0:00"), (59.6, "1:00"), (754, "12:34"), (3723, "1:02:03")])
def test_durations(seconds: float, text: str) -> None:
    assert progress._duration(seconds) == text


def test_the_start_of_ray_stays_on_the_screen_until_it_is_over() -> None:
    bars = Progress(console=Console(file=io.StringIO()))
    watcher, beside = BarWatcher(bars), ["starting Ray"]
    watcher.beside(lambda: beside[-1])
    watcher.begin("fedavg", 8, 4, 2)
    stage, bar = bars.tasks
    assert stage.visible and stage.description == "starting Ray" and bar.completed == 2
    beside.append("")
    watcher.block(Block(0, (1, 2), 2))
    assert not stage.visible and bar.completed == 2.5


def test_lines_say_when_what_is_beside_the_rounds_changes() -> None:
    console = Console(file=io.StringIO())
    watcher, beside = LineWatcher(console), ["Ray starts if this takes long"]
    watcher.beside(lambda: beside[-1])
    for text in (beside[0], "starting Ray", "starting Ray", ""):
        beside.append(text)
        watcher.block(Block(0, (1, 2), 2))
    assert console.file.getvalue().splitlines() == ["Ray starts if this takes long", "starting Ray"]
