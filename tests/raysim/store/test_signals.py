"""Ctrl-C and SIGTERM: a run stops after its round, or at once, and goes on to the bytes of another."""

import logging
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import tomli_w

from raysim.simulation.stop import Stop
from tests.kit.commands import run_raysim
from tests.kit.runs import SMALL, Breaks, assert_same, quick_resume, quick_run


class Signal(logging.Handler):
    """Sends this process a signal at the first log line with a text; a thread that looks for it may come too late."""

    def __init__(self, text: str, number: int) -> None:
        super().__init__()
        self._text, self._number, self._sent = text, number, False

    def emit(self, record: logging.LogRecord) -> None:
        if self._text in record.getMessage() and not self._sent:
            self._sent = True
            os.kill(os.getpid(), self._number)


@contextmanager
def signalled(text: str, number: int) -> Iterator[None]:
    """Send a signal at a line of the log of a run in the context."""
    handler = Signal(text, number)
    logging.getLogger("raysim").addHandler(handler)
    try:
        yield
    finally:
        logging.getLogger("raysim").removeHandler(handler)


LONG: dict[str, Any] = {
    **SMALL,
    "rounds": 8,
    "algorithm": {"name": "fedbn", "cohort": 3},
    "evaluate": {"every": 0, "metrics": ["accuracy"]},
}


@pytest.fixture(scope="module")
def long(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run of some rounds, and its experiment as a file."""
    folder = tmp_path_factory.mktemp("long")
    (folder / "long.toml").write_text(tomli_w.dumps(LONG))
    quick_run(LONG, folder / "whole", inline=True)
    return folder


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_stops_a_run_after_the_round(
    long: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], number: int, status: int
) -> None:
    before = [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)]
    with signalled("round 3 ", number):
        ended, _, err = run_raysim(capsys, "run", long / "long.toml", "--inline", "--out", tmp_path)
    last = err.splitlines()[-1]
    assert ended == status and last.startswith("stopped after round ")
    assert last.endswith(f"; continue with: raysim resume {tmp_path} --inline")
    assert [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)] == before
    rounds = int(last.split()[3].rstrip(";"))
    assert f"{rounds:09}" in max((tmp_path / "fedbn" / "checkpoint").iterdir()).name
    watcher = Breaks(0)
    quick_resume(tmp_path, inline=True, watcher=watcher)
    assert f"fedbn: continues after round {rounds}" in watcher.notices
    assert_same(long / "whole", tmp_path, "fedbn")


def test_two_signals_stop_a_run_at_once(long: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stop = Stop()
    with stop.between_rounds():
        stop.ask(signal.SIGTERM, None)
        assert stop.asked
        with pytest.raises(KeyboardInterrupt):
            stop.ask(signal.SIGINT, None)
    capsys.readouterr()
    with signalled("fingerprint", signal.SIGINT):
        ended, _, err = run_raysim(capsys, "run", long / "long.toml", "--inline", "--out", tmp_path / "run")
    assert ended == 130 and err.splitlines()[-1].endswith(f"continue with: raysim resume {tmp_path / 'run'} --inline")
    assert (tmp_path / "run" / "config.toml").exists()
