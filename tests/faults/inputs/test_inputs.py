"""Drawn commands, files and options end with status 0, 1 or 2 and one line, in bounded time and memory."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.faults.inputs.refusals import Workplace


@pytest.fixture(scope="module")
def place() -> Iterator[Workplace]:
    workplace = Workplace()
    yield workplace
    workplace.close()


def check(place: Workplace, numbers: range) -> None:
    with ThreadPoolExecutor(2) as pool:
        outcomes = list(pool.map(place.case, numbers))
    wrong = {number: each for number, each in zip(numbers, outcomes, strict=True) if each.wrong}
    assert not wrong
    assert {each.status for each in outcomes} >= {0, 2}


def test_drawn_commands(place: Workplace) -> None:
    check(place, range(40))


@pytest.mark.slow
@pytest.mark.parametrize("first", range(40, 1040, 100))
def test_many_drawn_commands(first: int, place: Workplace) -> None:
    check(place, range(first, first + 100))
