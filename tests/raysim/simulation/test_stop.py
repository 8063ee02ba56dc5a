"""Requests to stop a run between two rounds."""

import os
import signal

import pytest

from raysim.simulation.stop import Stop


def test_a_run_whose_terminal_is_gone_still_stops_after_its_round(monkeypatch: pytest.MonkeyPatch) -> None:
    def write(*_: object) -> int:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "write", write)
    stop = Stop()
    with stop.between_rounds():
        stop.ask(signal.SIGTERM, None)
    assert stop.asked and stop.signal is signal.SIGTERM
