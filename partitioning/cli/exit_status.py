"""How a command line ends: 0 done, 1 failed, 2 wrong input, and a failure is one line."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import click

from partitioning.common.errors import InputError


def run_command(group: click.Group, name: str, arguments: Sequence[str] | None = None) -> NoReturn:
    """Run a group of commands and exit.

    Wrong input, and what the machine refuses (a full disk, a dead process), is one line on the standard error
    stream. Any other exception is a bug: it keeps its traceback, and Python exits with 1.

    Args:
        group: the commands.
        name: of the program, which begins the line.
        arguments: default those of the process.
    """
    try:
        status = group.main(arguments, prog_name=name, standalone_mode=False) or 0
    except click.ClickException as error:
        status = _complain(name, error.format_message(), 2)
    except InputError as error:
        status = _complain(name, str(error), 2)
    except (click.Abort, KeyboardInterrupt):
        status = _complain(name, "interrupted", 1)
    except (RuntimeError, OSError, MemoryError) as error:
        status = _complain(name, str(error) or type(error).__name__, 1)
    sys.exit(status)


def folder_of(name: str) -> Path:
    """Return the folder of a population that a path or a URI names; one elsewhere is fetched into the cache."""
    from partitioning.store.remote import is_uri

    if not is_uri(name):
        return Path(name)
    from rich.console import Console

    from partitioning.cli.progress import progress_bar
    from partitioning.store.fetching import fetch

    with progress_bar(Console(stderr=True), "fetching") as told:
        return fetch(name, told=told)


def _complain(name: str, message: str, status: int) -> int:
    click.echo(f"{name}: {' '.join(message.split())}", err=True)
    return status
