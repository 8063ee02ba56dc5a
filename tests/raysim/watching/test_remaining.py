"""Estimates of the time left, on a clock of the test's own."""

import pytest

from raysim.watching import progress
from raysim.watching.progress import Remaining


class Clock:
    """Clock that moves by hand."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        monkeypatch.setattr(progress, "monotonic", lambda: self.now)


@pytest.mark.parametrize(
    ("rounds", "ended", "seconds"),
    [
        pytest.param(20, [], None, id="no round has ended"),
        pytest.param(20, [(30.0, 1)], None, id="the first round loads libraries and data, and starts actors"),
        pytest.param(20, [(30.0, 1), (30.5, 2)], None, id="two rounds are too few"),
        pytest.param(20, [(0.5, 1), (1.0, 2), (1.5, 3)], None, id="two seconds have not passed"),
        pytest.param(20, [(30.0, 1), (30.5, 2), (31.0, 3)], 8.5, id="the first round is no measure of the others"),
        pytest.param(20, [(1.0, 1), (2.0, 2), (9.0, 3), (10.0, 4)], 16.0, id="one slow round does not count"),
        pytest.param(200, [(4.0, 101), (8.0, 102), (12.0, 103)], 97 * 4.0, id="a resumed run measures its own rounds"),
        pytest.param(
            200, [(10.0 * min(n, 49) + max(n - 49, 0), n) for n in range(1, 101)], 100.0, id="the newest rounds count"
        ),
        # Round 2 took 8 s the second time, and round 3 took 2 s.
        pytest.param(
            10, [(2.0 * place, n) for place, n in enumerate((1, 2, 3, 4, 2, 3), 1)], 7 * 5.0, id="rounds run again"
        ),
        pytest.param(3, [(1.0, 1), (2.0, 2), (3.0, 3)], 0.0, id="nothing is left after the last round"),
    ],
)
def test_the_time_left_is_that_of_the_measured_rounds(
    rounds: int, ended: list[tuple[float, int]], seconds: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, left = Clock(monkeypatch), Remaining(rounds)
    for clock.now, number in ended:
        left.round(number)
    assert left.seconds() == seconds


def test_time_passes_within_a_round_and_later_rounds_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, left = Clock(monkeypatch), Remaining(6)
    for clock.now, number in ((10.0, 1), (20.0, 2), (30.0, 3)):
        left.round(number)
    clock.now += 4.0
    assert left.seconds() == 26.0
    clock.now += 1000.0
    assert left.seconds() == 20.0
