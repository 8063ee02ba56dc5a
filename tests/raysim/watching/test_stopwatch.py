"""The stopwatch: stages add up to the wall clock."""

import subprocess
import sys
import time

import pytest

from raysim.watching.stopwatch import RoundSeconds, StageTime, Stopwatch, process_started


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Hold the time that `time.perf_counter` shows."""
    now = [100.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    return now


def test_stages_add_up(clock: list[float]) -> None:
    stopwatch = Stopwatch(started=90.0)
    for stage, seconds in (("data", 2.0), ("plan", 3.0), ("report", 1.0), ("data", 4.0)):
        clock[0] += seconds
        stopwatch.enter(stage)
    clock[0] += 0.5
    times = stopwatch.stop()
    assert times == [StageTime("start", 12.0), StageTime("data", 3.5), StageTime("plan", 1.0), StageTime("report", 4.0)]
    assert sum(each.seconds for each in times) == clock[0] - 90


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ({"training": 6.0, "evaluation": 1.0}, {"training": 6.0, "evaluation": 1.0, "files": 3.0}),
        ({"training": 6.0, "evaluation": 5.0}, {"training": 6.0, "evaluation": 4.0}),  # evaluated beside rounds
        ({"training": 20.0, "evaluation": 5.0}, {"training": 10.0}),  # added up over actors
        ({"training": 0.0}, {"files": 10.0}),
    ],
)
def test_a_stage_is_split(clock: list[float], parts: dict[str, float], expected: dict[str, float]) -> None:
    stopwatch = Stopwatch()
    stopwatch.enter("files", "fedavg")
    clock[0] += 10
    stopwatch.split(parts)
    assert {each.stage: each.seconds for each in stopwatch.stop() if each.algorithm == "fedavg"} == expected


def test_rounds_are_summed_and_passed_on() -> None:
    passed: list[object] = []
    spent = RoundSeconds()
    add = spent.then(passed.append)
    rows = [{"seconds": 2.0, "seconds_evaluate": 0.5}, {"seconds": 3.0}, {"seconds": 1.0, "seconds_evaluate": None}]
    for row in rows:
        add(row)
    assert (spent.training, spent.evaluation) == (6.0, 0.5) and passed == rows


def test_evaluation_after_the_rounds_is_added(clock: list[float]) -> None:
    spent = RoundSeconds()
    spent.then(lambda row: None)({"seconds": 2.0, "seconds_evaluate": 0.5})
    waited = [3.0]
    with spent.evaluating(lambda: waited[0]):
        clock[0] += 10
        waited[0] += 6
    assert spent.parts(9.0) == {"training": 2.0, "fleet": 9.0, "evaluation": 4.5}


def test_the_process_began_before_its_first_line() -> None:
    code = (
        "import time; first = time.perf_counter()\n"
        "from raysim.watching.stopwatch import process_started\n"
        "print(first - process_started())"
    )
    began = time.perf_counter()
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    # Linux counts in hundredths of a second.
    assert -0.02 <= float(done.stdout) <= time.perf_counter() - began + 0.02
    assert process_started() < began
