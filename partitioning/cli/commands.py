"""The command line: `partitioning make | inspect | plot | verify`."""

import signal
from collections.abc import Sequence
from typing import NoReturn

import click

from partitioning.cli.exit_status import folder_of, run_command
from partitioning.cli.make import make
from partitioning.cli.show import inspect, plot
from partitioning.common.errors import InputError


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and exit: 0 done, 1 failed, 2 wrong input; a failure is one line on stderr."""
    signal.signal(signal.SIGTERM, _interrupt)
    run_command(_group, "partitioning", arguments)


def _interrupt(*_: object) -> NoReturn:
    # A job that is ended from outside cleans up as after Ctrl-C: the default would leave its draft behind.
    raise KeyboardInterrupt


@click.group(name="partitioning", invoke_without_command=True, no_args_is_help=False)
@click.pass_context
def _group(context: click.Context) -> None:
    """Partition a labelled data set into clients with controlled sizes and class mixes."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


@click.command()
@click.argument("folder", metavar="DIR")
@click.option("--site", "sites", multiple=True, help="A site of which the samples are there; repeatable.  [all]")
def verify(folder: str, sites: tuple[str, ...]) -> None:
    """Check every byte of the population in DIR, a folder or a URI."""
    from partitioning.store.verification import verify as find_faults

    findings = find_faults(folder_of(folder), sites or None)
    if findings:
        more = f" (and {len(findings) - 1} more, listed above)" if len(findings) > 1 else ""
        if more:
            click.echo("\n".join(findings))
        raise InputError(findings[0] + more)
    click.echo(f"{folder}: every checksum, count and sum is right")


for _command in (make, inspect, plot, verify):
    _group.add_command(_command)
