"""Help of a program whose commands stand in the order of their use, under headings."""

from collections.abc import Mapping, Sequence
from typing import Any

import click

MOST_COLUMNS = 120
"""Widest line of a help text; a narrower terminal wraps it at its own width."""


class Sections(click.Group):
    """Group whose help lists its commands by heading, in the order of their use.

    Args:
        sections: names of all commands by heading.
    """

    def __init__(self, *args: Any, sections: Mapping[str, Sequence[str]], **options: Any) -> None:
        super().__init__(*args, **options)
        self.sections = sections

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [name for names in self.sections.values() for name in names]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write one list for each heading, all with one width of the names' column."""
        width = max(map(len, self.commands))
        for heading, names in self.sections.items():
            rows = [(f"{name:<{width}}", self.commands[name].get_short_help_str(formatter.width)) for name in names]
            with formatter.section(heading):
                formatter.write_dl(rows)
