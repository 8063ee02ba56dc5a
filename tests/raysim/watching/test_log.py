"""The log of a run: what a person finds in it."""

import logging
from pathlib import Path

import pytest

from algorithms import Algorithm, Assign, Local, Participation, Rounds, Samples, Sharing
from raysim.watching.log import at_most_every, brief, log_algorithm, log_command_time, run_log
from raysim.watching.stopwatch import StageTime


def test_it_says_what_ran_and_how_it_ended(tmp_path: Path) -> None:
    with run_log(tmp_path / "run.log") as log:
        log_algorithm("mine", Algorithm(Rounds(Participation(cohort=3)), Local(), Sharing(), Samples(), Assign()))
    with pytest.raises(KeyboardInterrupt), run_log(tmp_path / "run.log"):
        raise KeyboardInterrupt("stopped after round 7")
    with pytest.raises(ZeroDivisionError), run_log(tmp_path / "run.log"):
        log.info("%d", 1 // 0)
    text = (tmp_path / "run.log").read_text()
    lines = [line.split(" ", 3)[2:] for line in text.splitlines() if line[:2] == "20"]
    told = [line for _, line in lines]
    assert told[0].startswith("raysim ") and ", torch " in told[0] and told[1].startswith("command: ")
    assert told[2:7] == [
        "mine: schedule: Rounds(participation=Participation(cohort=3))",
        "mine: local: Local(lr=0.1, epochs=1, batch_size=10)",
        "mine: sharing: Sharing()",
        "mine: weighting: Samples()",
        "mine: server: Assign()",
    ]
    assert told[7].startswith("ended after ") and told[7].endswith(f"see {tmp_path / 'report.html'}")
    assert lines[10][0] == "WARNING" and told[10].startswith("stopped after round 7, ")
    assert lines[13][0] == "ERROR" and "Traceback" in text and len(lines) == 14
    assert logging.getLogger("raysim").handlers == []


def test_a_part_is_shown_without_its_defaults() -> None:
    assert brief(Local(lr=0.5, epochs=2, clip=1.0)) == "Local(lr=0.5, epochs=2, batch_size=10, clip=1.0)"
    assert brief((1, "a")) == "(1, 'a')"


def test_frequent_events_are_logged_from_time_to_time() -> None:
    hourly, always = at_most_every(3600), at_most_every(0)
    assert [hourly() for _ in range(3)] == [True, False, False] and all(always() for _ in range(3))


def test_a_line_between_two_logs_silences_neither(tmp_path: Path) -> None:
    for name in ("first", "second"):
        with run_log(tmp_path / name) as log:
            log.info("inside")
        logging.getLogger("raysim").info("out of both")
        log_command_time(tmp_path / name, "run", [StageTime("start", 1.5)])
        lines = (tmp_path / name).read_text().splitlines()
        assert any(line.endswith("inside") for line in lines) and "start 1.50 s" in lines[-1]
        assert not any("out of both" in line for line in lines)
