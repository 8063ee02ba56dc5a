"""The command line's reference, from its commands."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator

import click

from docs.generated.text import Names, escaped, joined
from partitioning.cli.commands import _group as partitioning_cli
from raysim.cli.commands import cli as raysim_cli


def commands(page: str, names: Names) -> str:
    """Return all commands of both programs."""
    return joined(
        *_program(raysim_cli, "raysim", page, names), *_program(partitioning_cli, "partitioning", page, names)
    )


def _program(group: click.Group, name: str, page: str, names: Names) -> Iterator[str]:
    yield joined(f"## `{name}`", _prose(group.help, page, names))
    yield from _commands(group, click.Context(group, info_name=name), page, names)


def _commands(group: click.Group, context: click.Context, page: str, names: Names) -> Iterator[str]:
    for each in group.list_commands(context):
        command = group.get_command(context, each)
        if command is None or command.hidden:
            continue
        inside = click.Context(command, info_name=each, parent=context)
        if isinstance(command, click.Group):
            yield from _commands(command, inside, page, names)
        else:
            yield _command(command, inside, page, names)


def _command(command: click.Command, context: click.Context, page: str, names: Names) -> str:
    usage = " ".join([context.command_path, *command.collect_usage_pieces(context)])
    records = [record for each in command.get_params(context) if (record := _record(each, context)) is not None]
    options = "\n".join(f"- `{given}`" + (f": {_help(text)}" if text else "") for given, text in records)
    return joined(f"### `{context.command_path}`", _prose(command.help, page, names), f"```text\n{usage}\n```", options)


def _record(parameter: click.Parameter, context: click.Context) -> tuple[str, str] | None:
    """Return how an option is given, and its help text; None for arguments, which the usage shows, and `--help`."""
    if isinstance(parameter, click.Argument) or "--help" in parameter.opts:
        return None
    return parameter.get_help_record(context)


def _help(text: str) -> str:
    """Return an option's help text with its default as a sentence."""
    text = escaped(re.sub(r"\.?  \[(?:default: )?([^\]]+)\](; or:)?", _default, text))
    return text if text.endswith(".") else f"{text}."


def _default(found: re.Match[str]) -> str:
    said = "Required." if found[1] == "required" else f"Default: {found[1]}."
    return f". {said}" + (" Or:" if found[2] else "")


def _prose(text: str | None, page: str, names: Names) -> str:
    blocks = re.split(r"\n\s*\n", inspect.cleandoc(text or ""))
    return joined(*(_block(block, page, names) for block in blocks))


def _block(block: str, page: str, names: Names) -> str:
    if block.startswith("\b\n"):
        return f"```text\n{block.removeprefix(chr(8) + chr(10))}\n```"
    return names.text(" ".join(block.split()), page)
