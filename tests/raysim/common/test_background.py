"""Work in the background: all of it, in order, or an error."""

import subprocess
import sys
import threading

import pytest

from raysim.common.background import MAX_WAITING, Background


def call_each(background: Background, numbers: list[int]) -> None:
    for number in numbers:
        background(number)


def test_every_call_is_made_in_order() -> None:
    done: list[int] = []
    background = Background(done.append)
    call_each(background, list(range(5 * MAX_WAITING)))
    background.close()
    background.close()
    assert done == list(range(5 * MAX_WAITING))


def test_only_so_many_calls_wait() -> None:
    gate, done = threading.Event(), list[int]()

    def work(number: int) -> None:
        gate.wait()
        done.append(number)

    background = Background(work)
    call_each(background, list(range(MAX_WAITING)))
    assert done == []
    threading.Timer(0.1, gate.set).start()
    background(MAX_WAITING)
    assert done  # the call above was held up until one was done
    background.close()
    assert done == list(range(MAX_WAITING + 1))


def test_the_first_error_is_raised_and_ends_the_work() -> None:
    done: list[int] = []
    background = Background(lambda number: done.append(1 // number))
    with pytest.raises(ZeroDivisionError):
        call_each(background, [1, 0] + [1] * 2 * MAX_WAITING)
    with pytest.raises(ZeroDivisionError):
        background.close()
    assert done == [1]


def test_python_exits_only_when_all_is_done() -> None:
    code = """
import time
from raysim.common.background import Background
background = Background(lambda text: (time.sleep(0.2), print(text)))
background("one"), background("two")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.split() == ["one", "two"] and not done.stderr
