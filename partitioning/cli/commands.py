"""The command line: `partitioning make | inspect | plot | verify`."""

import signal
from collections.abc import Sequence
from typing import NoReturn

import click

from partitioning.cli.exit_status import run_command
from partitioning.cli.make import make
from partitioning.cli.show import inspect, plot, verify


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and exit: 0 done, 1 failed, 2 wrong input; an error is one line on stderr."""
    signal.signal(signal.SIGTERM, _interrupt)
    run_command(_group, "partitioning", arguments)


def _interrupt(*_: object) -> NoReturn:
    # Clean up on SIGTERM as after Ctrl-C; the default handler would leave a draft folder behind.
    raise KeyboardInterrupt


@click.group(name="partitioning", invoke_without_command=True, no_args_is_help=False)
@click.pass_context
def _group(context: click.Context) -> None:
    """Partition a labelled data set into clients with controlled sizes and class mixes."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


for _command in (make, inspect, plot, verify):
    _group.add_command(_command)
