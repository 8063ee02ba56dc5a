"""Commands that list names and write files: `raysim list | show | init | export`."""

import shutil
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from partitioning.cli.paths import PATH
from partitioning.cli.terminal import echo
from partitioning.common.text import PARAGRAPH, word

KINDS = (
    *("algorithms", "datasets", "keys", "losses", "metrics", "models"),
    *("optimisers", "recipes", "reproductions", "schemes", "uplink"),
)
"""Kinds of names that `raysim list` takes."""


def recipe_names(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the recipes that complete a word, and the shell's own files."""
    from raysim.config.read import recipes

    found = [CompletionItem(name) for name in recipes() if name.startswith(incomplete)]
    return [*found, CompletionItem(incomplete, type="file")]


class _Kind(click.Choice[str]):
    """Kind of names, in the singular and in American spelling too."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        word = str(value).casefold().replace("optimizer", "optimiser")
        near = [kind for kind in KINDS if word and kind in (word, f"{word}s", f"{word}es")]
        return super().convert(near[0] if near else value, param, ctx)


@click.command("list")
@click.argument("kind", type=_Kind(KINDS), metavar="KIND")
@click.argument("name", required=False)
def list_(kind: str, name: str | None) -> None:
    """List names for experiment files, or their keys.

    KIND is algorithms, datasets, keys, losses, metrics, models, optimisers, recipes, reproductions, schemes or uplink.

    With the NAME of an algorithm, a loss, a model or a scheme, list its keys.

    `raysim list keys [TABLE]` lists every key of a table of the file, such as `local`, `evaluate`, `fleet` or
    `study`, with its type and range, default and meaning. Options, such as compression, have tables too. TABLE.KEY
    names one key.
    """
    if kind == "keys":
        from raysim.cli.keys import key_lines

        show_lines(key_lines(name))
        return
    from raysim.cli.listing import LISTS, keys_of, sections

    if name is not None:
        show_lines(list(keys_of(kind, name)) or [(name, "no keys of its own")])
        return
    if not sys.stdout.isatty():
        show_lines(list(LISTS[kind]().items()))
        return
    known = LISTS[kind]()
    for number, (heading, names) in enumerate(sections(kind).items()):
        if heading:
            click.secho(f"\n{heading}" if number else heading, bold=True)
        show_lines([(each, known[each]) for each in names], max(map(len, known)))


def show_lines(lines: Sequence[tuple[str, str]], longest: int = 0) -> None:
    """Print names and descriptions in two columns; `longest` is the least width of the first."""
    width = max([longest, *(len(name) for name, _ in lines)]) + 2
    columns = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    for name, description in lines:
        for line in folded(f"{name:<{width}}{description}", columns, width):
            echo(line)


def folded(line: str, columns: int | None, indent: int) -> list[str]:
    """Return the lines that show a line on a terminal of so many columns; the line itself without a terminal.

    Args:
        line: text to show.
        columns: characters of a line of the terminal; None without a terminal.
        indent: blanks before the second line and those after it; 4 if they would take half of a line.
    """
    if columns is None or len(line) <= columns:
        return [line]
    blanks = " " * (indent if 2 * indent <= columns else 4)
    shown = textwrap.wrap(line, columns, subsequent_indent=blanks, break_long_words=False, break_on_hyphens=False)
    return [each.rstrip() for each in shown]


@click.command()
@click.argument("recipe", shell_complete=recipe_names)
def show(recipe: str) -> None:
    """Print a recipe, to read or to save as a file of your own."""
    from raysim.cli.listing import recipe as text_of

    show_text(text_of(recipe))


def show_text(text: str) -> None:
    """Print a file, line by line."""
    for line in text.splitlines():
        echo(line, most=PARAGRAPH)


@click.command()
@click.argument("data", metavar="DATA")
@click.argument("file", type=PATH, default="experiment.toml", metavar="[FILE.toml]")
@click.option("--label", help="Label column of a table.  [default: a column with a usual name]")
def init(data: str, file: Path, label: str | None) -> None:
    """Write a commented experiment file for your data.

    DATA is a table, a folder of a table's files or of images by class, a population, or a name from `raysim list
    datasets`. FILE.toml is new; by default it is experiment.toml. `-` prints the file in place of writing it.
    """
    from partitioning.common.disk import write_whole
    from raysim.cli.begin import experiment_for
    from raysim.common.errors import InputError

    if str(file) == "-":
        show_text(experiment_for(data, "FILE.toml", label))
        return
    if file.exists():
        raise InputError(f"{file}: must be a new file, and exists; name another")
    text = experiment_for(data, str(file), label)
    file.parent.mkdir(parents=True, exist_ok=True)
    with write_whole(file) as draft:
        draft.write_text(text, encoding="utf-8")
    echo(f"written {file}")
    echo(f"next    read it; then: raysim run {word(file)}")


@click.command()
@click.argument("dataset")
@click.argument("path", type=PATH, metavar="FILE.parquet")
@click.option("--root", help="Folder of the data set's files.  [default: the cache]")
@click.option("--shift", "shifts", multiple=True, help="Domain to make of shifted:NAME. Repeatable.")
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of all random draws.")
@click.option("--rows", type=int, help="Largest number of training rows, the first ones.  [default: all]")
def export(dataset: str, path: Path, root: str | None, shifts: tuple[str, ...], seed: int, rows: int | None) -> None:
    """Write a data set as a table for `partitioning make`."""
    from raysim.common.errors import InputError
    from raysim.data.export import export as write

    if seed < 0:
        raise InputError(f"--seed = {seed}: must be at least 0; leave it out for 0")
    for written in write(dataset, path, root=root, shifts=shifts, seed=seed, rows=rows):
        echo(written)
