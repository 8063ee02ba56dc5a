"""Boards of a study: a notice that all trials repeat is printed once."""

import io
from collections.abc import Callable

import pytest
from rich.live import Live

from partitioning.cli.console import Console
from raysim.studies.showing import BoardLines, LiveBoard, PrintingBoard


@pytest.mark.parametrize("board", [BoardLines, lambda console: LiveBoard(Live(console=console))])
def test_a_notice_is_printed_once(board: Callable[[Console], PrintingBoard]) -> None:
    file = io.StringIO()
    shown = board(Console(file=file))
    for text in ("a:b is not part of raysim", "another", "a:b is not part of raysim"):
        shown.notice(text)
    assert file.getvalue().splitlines() == ["notice: a:b is not part of raysim", "notice: another"]
