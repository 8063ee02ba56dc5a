"""Commands in the launch files and their README: Ray and raysim know them, and every option of theirs."""

import re
import shlex
from collections.abc import Iterator

import click
import pytest
from ray.scripts.scripts import cli as ray_cli

from raysim.cli.commands import cli
from tests.kit.launch_files import ALL, CLUSTERS, ROOT, loaded, name, scalars

END = r"""[^\n;|`'"#>&]*"""
"""To where a command ends: at a comment, a quote, a pipe."""


def texts() -> Iterator[tuple[str, str]]:
    """What stands in each file, with commands that span lines as one line."""
    for path in ALL:
        if path.suffix == ".yaml":
            yield from ((name(path), text) for text in scalars(loaded(path)))
            comments = re.findall(r"#(.*)", path.read_text(encoding="utf-8"))
            yield name(path), "\n".join(comments)
        else:
            yield name(path), re.sub(r"\\\n\s*#?\s*", " ", path.read_text(encoding="utf-8"))


def found(pattern: str) -> list[tuple[str, str]]:
    return sorted({(file, command.strip()) for file, text in texts() for command in re.findall(pattern, text)})


def option_names(command: click.Command) -> set[str]:
    return {name for each in command.params for name in (*each.opts, *each.secondary_opts)} | {"--help"}


RAY = found(rf"(?<![\w/.~-])ray (?=[a-z]){END}") + found(rf"(?<=bin/)ray (?=[a-z]){END}")
RAYSIM = found(rf"(?<![\w/.~-])raysim (?:{'|'.join(cli.commands)}) +[^\n;|`#>&]+")


def test_there_are_commands() -> None:
    assert len(RAY) > 15 and len(RAYSIM) > 5
    used = {command.split()[1] for _, command in RAY}
    assert {"up", "start", "symmetric-run", "job", "dashboard", "exec", "get-auth-token", "status"} <= used


@pytest.mark.parametrize(("file", "command"), RAY)
def test_ray_knows_it(file: str, command: str) -> None:
    words = command.partition(" -- ")[0].split()
    known = ray_cli.commands[words[1]]
    if isinstance(known, click.Group):
        known = known.commands[words[2]]
    names = option_names(known)
    if known.name == "symmetric_run":
        names |= option_names(ray_cli.commands["start"]) - {"--head", "--node-ip-address", "--port", "--block"}
    given = {re.split(r"[=,.]", word)[0] for word in words if word.startswith("-")}
    assert given <= names, f"{file}: {command}"


@pytest.mark.parametrize(("file", "command"), RAYSIM)
def test_raysim_knows_it(file: str, command: str) -> None:
    _, subcommand, *arguments = shlex.split(command.replace('"$@"', ""))
    cli.commands[subcommand].make_context(subcommand, arguments)


def test_files_that_are_named_are_there() -> None:
    text = (CLUSTERS / "README.md").read_text(encoding="utf-8")
    links = [link for link in re.findall(r"\]\(([^)]+)\)", text) if not link.startswith("../")]
    assert links and all((CLUSTERS / link).exists() for link in links)
    named = found(r"clusters/[\w./-]+\w")
    assert named and all((ROOT / path).exists() for _, path in named)
    assert {path.parent.name for path in ALL if path.parent != CLUSTERS} == {
        link.split("/")[0] for link in links if "/" in link
    }
