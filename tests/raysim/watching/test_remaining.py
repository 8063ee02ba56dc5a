"""Estimates of the time left, on a clock of the test's own."""

import pytest

from raysim.watching import progress
from raysim.watching.progress import Remaining


class Clock:
    """Clock that moves by hand."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        monkeypatch.setattr(progress, "monotonic", lambda: self.now)


def test_the_first_round_is_no_measure_of_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, left = Clock(monkeypatch), Remaining(20)
    assert left.seconds() is None
    clock.now = 30.0  # libraries, data and actors
    left.round(1)
    assert left.seconds() is None
    clock.now = 30.5
    left.round(2)
    assert left.seconds() == 9.0


def test_a_resumed_run_measures_its_own_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, left = Clock(monkeypatch), Remaining(200)
    for number in (101, 102, 103):
        clock.now += 4.0
        left.round(number)
    assert left.seconds() == 97 * 4.0


def test_time_passes_within_a_round_and_later_rounds_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, left = Clock(monkeypatch), Remaining(5)
    for number in (1, 2):
        clock.now += 10.0
        left.round(number)
    clock.now += 4.0
    assert left.seconds() == 26.0
    clock.now += 1000.0
    assert left.seconds() == 20.0


def test_only_the_newest_rounds_count(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, left = Clock(monkeypatch), Remaining(200)
    for number in range(1, 101):
        clock.now += 10.0 if number < 50 else 1.0
        left.round(number)
    assert left.seconds() == 100.0


def test_rounds_that_are_run_again_replace_those_before(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, left = Clock(monkeypatch), Remaining(10)
    for number in (1, 2, 3, 4, 2, 3):
        clock.now += 2.0
        left.round(number)
    # From the end of round 1 at 2 s to that of round 3 at 12 s.
    assert left.seconds() == 7 * 5.0


def test_nothing_is_left_after_the_last_round(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, left = Clock(monkeypatch), Remaining(2)
    for number in (1, 2):
        clock.now += 1.0
        left.round(number)
    assert left.seconds() == 0.0
