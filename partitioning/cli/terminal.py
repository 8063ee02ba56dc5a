"""Output on the terminal: every text is made printable here."""

import io
import sys

import click

from partitioning.common.text import LINE, printable


def echo(text: object, *, err: bool = False, most: int = LINE) -> None:
    """Print a text as one line of at most `most` characters."""
    click.echo(printable(text, most), err=err)


def escape_unencodable() -> None:
    """Let stdout and stderr write an escape for a character that their encoding lacks."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
