"""Exit statuses of a command line: 0 done, 1 failed, 2 wrong input, 130 interrupted."""

import errno
import signal
import sys
from collections.abc import Sequence
from typing import NoReturn

import click

from partitioning.cli.terminal import echo, escape_unencodable
from partitioning.common.errors import InputError

FORBIDDEN = (errno.EROFS, errno.EACCES, errno.EPERM)
"""Numbers of errors at a place that may not be used."""


def run_command(group: click.Group, name: str, arguments: Sequence[str] | None = None) -> NoReturn:
    """Run a group of commands, by default with the arguments of the process, and exit.

    Wrong input, and failures of the machine (a full disk, a dead process), print one line on stderr, which begins with
    the program's name. Any other exception is a bug and keeps its traceback; Python then exits with 1.
    """
    escape_unencodable()
    try:
        status = group.main(arguments, prog_name=name, standalone_mode=False) or 0
    except click.ClickException as error:
        status = _complain(name, error.format_message(), 2)
    except InputError as error:
        # A file may have several mistakes, a line each.
        status = max(_complain(name, line, 2) for line in str(error).splitlines() or [""])
    except (click.Abort, KeyboardInterrupt):
        status = _complain(name, "interrupted", 128 + signal.SIGINT)
    except OSError as error:
        status = _complain(name, _described(error), 1)
    except (RuntimeError, MemoryError) as error:
        status = _complain(name, str(error) or type(error).__name__, 1)
    sys.exit(status)


def _described(error: OSError) -> str:
    """Return the message of an error of the system, with the remedy if a place may not be used."""
    if error.errno not in FORBIDDEN or error.filename is None:
        return str(error) or type(error).__name__
    return (
        f"{error.filename} cannot be used ({error.strerror}): must be readable and writable; change its permissions or "
        "its file system, or choose another place"
    )


def _complain(name: str, message: str, status: int) -> int:
    echo(f"{name}: {' '.join(message.split())}", err=True)
    return status
