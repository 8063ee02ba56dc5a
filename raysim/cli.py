"""The command line: `raysim run | resume | report | list | export`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import click

from partitioning.command import run_command

if TYPE_CHECKING:  # it takes seconds to import
    from raysim.experiment import Run


class _Place(click.ParamType[Path | str]):
    # A folder or, as it is, the URI of one.
    name = "path"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path | str:
        from partitioning.remote import is_uri

        return str(value) if is_uri(value) else Path(value)


PLACE = _Place()


@click.group(context_settings={"help_option_names": ["-h", "--help"]}, invoke_without_command=True)
@click.version_option(package_name="raysim")
@click.pass_context
def cli(context: click.Context) -> None:
    """Simulate federated learning: the same bytes on any number of actors."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


@cli.command()
@click.argument("experiment", metavar="FILE_OR_RECIPE")
@click.option("--out", type=PLACE, help="Folder of the run, or its URI; must be new.  [default: runs/NAME-TIME]")
@click.option(
    "--set",
    "changes",
    multiple=True,
    metavar="KEY.PATH=VALUE",
    help="Change a key of the file, of every algorithm or of one: algorithm.NAME.KEY; repeatable.",
)
@click.option("--actors", type=int, help="Number of client actors.  [default: the file's, else one a core]")
@click.option("--inline", is_flag=True, help="Run in this process, without Ray.")
@click.option("--address", help="A running Ray cluster, HOST:PORT.  [default: start Ray here]")
def run(
    experiment: str,
    out: Path | str | None,
    changes: tuple[str, ...],
    actors: int | None,
    inline: bool,
    address: str | None,
) -> None:
    """Run an experiment file, or a recipe by its name (see `raysim list recipes`)."""
    with _shown() as (engine, tell):
        done = engine.run(experiment, out, changes=changes, actors=actors, inline=inline, address=address, **tell)
    _show(
        done,
        "next    open the report; try another seed: the same command with --set seed=7 and without --out; "
        f"compare the two: raysim report {done.uri or done.folder} OTHER",
    )


@cli.command()
@click.argument("folder", type=PLACE, metavar="DIR")
@click.option("--actors", type=int, help="Number of client actors.  [default: the run's, else one a core]")
@click.option("--inline", is_flag=True, help="Go on in this process, without Ray.")
@click.option("--address", help="A running Ray cluster, HOST:PORT.  [default: start Ray here]")
def resume(folder: Path | str, actors: int | None, inline: bool, address: str | None) -> None:
    """Go on with a run that was stopped: DIR is its folder or URI, or that of one of its algorithms."""
    with _shown() as (engine, tell):
        done = engine.resume(folder, actors=actors, inline=inline, address=address, **tell)
    _show(done)


@contextmanager
def _shown() -> Iterator[tuple[ModuleType, dict[str, Any]]]:
    """Within, a run is shown and can be stopped: what runs it, and what it takes for that."""
    from rich.console import Console

    from raysim.stopping import stopped_by_signals

    with stopped_by_signals() as stop:
        try:
            with Console(stderr=True).status("loading"):
                from raysim import experiment
                from raysim.progress import display
            with display() as watcher:
                yield experiment, {"watcher": watcher, "stop": stop}
        except KeyboardInterrupt as stopped:
            click.echo(str(stopped) or "interrupted", err=True)
            # As a shell has it, of whom a signal ends.
            raise click.exceptions.Exit(128 + stop.signal) from None


def _show(done: Run, *more: str) -> None:
    from rich.console import Console

    from raysim.table import results_table

    screen = Console()
    screen.print(results_table(done.results))
    kept = [] if done.uri is None else [f"kept    {done.uri}"]
    for line in (f"report  {done.report}", *kept, *more):
        screen.print(line, soft_wrap=True, highlight=False)


@cli.command()
@click.argument("folders", nargs=-1, required=True, type=PLACE, metavar="DIR...")
@click.option("--out", type=click.Path(path_type=Path), help="The page to write.  [default: report.html]")
def report(folders: tuple[Path | str, ...], out: Path | None) -> None:
    """Write the report of one run, or of several side by side."""
    from raysim.report import write

    default = Path(folders[0] if len(folders) == 1 and isinstance(folders[0], Path) else "", "report.html")
    click.echo(write(folders, out or default))


@cli.command("list")
@click.argument("kind", type=click.Choice(["algorithms", "models", "datasets", "recipes"]))
@click.argument("name", required=False)
def list_(kind: str, name: str | None) -> None:
    """List what experiment files can name, or the keys that an algorithm or a model of this NAME has."""
    from raysim.table import keys_of, listing

    lines = list(listing(kind) if name is None else keys_of(kind, name))
    width = max(len(name) for name, _ in lines) + 2
    for name, description in lines:
        click.echo(f"{name:<{width}}{description}")


@cli.command()
@click.argument("dataset")
@click.argument("path", type=click.Path(path_type=Path), metavar="FILE.parquet")
@click.option("--root", help="Folder of the data set's own files.")
@click.option("--shift", "shifts", multiple=True, help="A domain to make of shifted:NAME; repeatable.")
@click.option("--seed", type=int, default=0, show_default=True, help="Keys what is drawn.")
def export(dataset: str, path: Path, root: str | None, shifts: tuple[str, ...], seed: int) -> None:
    """Write a data set as a table that `partitioning make` reads."""
    from raysim.data import export as write

    for written in write(dataset, path, root=root, shifts=shifts, seed=seed):
        click.echo(written)


def main() -> None:
    """The console script."""
    run_command(cli, "raysim")
