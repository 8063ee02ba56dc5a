"""Commands of raysim in the process of a test."""

from collections.abc import Callable

import pytest
from click.testing import CliRunner, Result

from partitioning.cli.exit_status import run_command
from raysim.cli.commands import cli

Cli = Callable[..., tuple[int, str, str]]


def run_raysim(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    """Run `raysim` with arguments; return its status and what it printed and said."""
    with pytest.raises(SystemExit) as done:
        run_command(cli, "raysim", [str(argument) for argument in arguments])
    printed = capsys.readouterr()
    return int(done.value.code or 0), printed.out, printed.err


def invoke(*arguments: object) -> Result:
    """Run `raysim` with arguments; the result holds what it raised."""
    return CliRunner().invoke(cli, [str(each) for each in arguments])
