"""The command line: `raysim run | resume | submit | follow | study | reproduce | report | list | export`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import click

from partitioning.cli.exit_status import run_command

if TYPE_CHECKING:  # it takes seconds to import
    from raysim.simulation.api import Run
    from raysim.simulation.stop import Stop


class _FolderOrUri(click.ParamType[Path | str]):
    # A folder or, as it is, the URI of one.
    name = "path"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path | str:
        from partitioning.store.remote import is_uri

        return str(value) if is_uri(value) else Path(value)


FOLDER_OR_URI = _FolderOrUri()


@click.group(context_settings={"help_option_names": ["-h", "--help"]}, invoke_without_command=True)
@click.version_option(package_name="raysim")
@click.pass_context
def cli(context: click.Context) -> None:
    """Simulate federated learning: the same bytes on any number of actors."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


@cli.command()
@click.argument("experiment", metavar="FILE_OR_RECIPE")
@click.option(
    "--out", type=FOLDER_OR_URI, help="Folder of the run, or its URI; must be new.  [default: runs/NAME-TIME]"
)
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
@click.argument("folder", type=FOLDER_OR_URI, metavar="DIR")
@click.option("--actors", type=int, help="Number of client actors.  [default: the run's, else one a core]")
@click.option("--inline", is_flag=True, help="Go on in this process, without Ray.")
@click.option("--address", help="A running Ray cluster, HOST:PORT.  [default: start Ray here]")
def resume(folder: Path | str, actors: int | None, inline: bool, address: str | None) -> None:
    """Go on with a run that was stopped: DIR is its folder or URI, or that of one of its algorithms."""
    with _shown() as (engine, tell):
        done = engine.resume(folder, actors=actors, inline=inline, address=address, **tell)
    _show(done)


@cli.command()
@click.argument("file", metavar="FILE_OR_RECIPE_OR_DIR")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    help="Folder of the study; where it is there, the study goes on.  [default: runs/NAME-TIME]",
)
@click.option("--set", "changes", multiple=True, metavar="KEY.PATH=VALUE", help="Change a key of the file; repeatable.")
@click.option("--actors", type=int, help="Trials at once, or client actors of each.  [default: one a core]")
@click.option("--inline", is_flag=True, help="Run one trial after the other in this process, without Ray.")
@click.option("--address", help="A running Ray cluster, HOST:PORT.  [default: start Ray here]")
def study(
    file: str, out: Path | None, changes: tuple[str, ...], actors: int | None, inline: bool, address: str | None
) -> None:
    """Run a study file, or a recipe of one, or go on with the study of a folder: trials that have ended are kept."""
    from rich.console import Console

    with _stoppable() as stop:
        with Console(stderr=True).status("loading"):
            from raysim.studies import studying
            from raysim.studies.showing import board
            from raysim.studies.tables import progress_table
        with board() as watcher:
            done = studying.study(
                file, out, changes=changes, actors=actors, inline=inline, address=address, watcher=watcher, stop=stop
            )
    screen = Console()
    screen.print(progress_table(done))
    for path in (done.folder / "table.md", done.folder / "report.html"):
        if path.exists():
            screen.print(f"written {path}", soft_wrap=True, highlight=False)


@cli.command()
@click.argument("name")
@click.option("--full", is_flag=True, help="With the paper's setting; else with a reduced one.")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    help="Folder of its study; where it is there, it goes on.  [default: runs/NAME-TIME]",
)
@click.option("--set", "changes", multiple=True, metavar="KEY.PATH=VALUE", help="Change a key; repeatable.")
@click.option("--actors", type=int, help="Trials at once, or client actors of each.  [default: one a core]")
@click.option("--inline", is_flag=True, help="Run one trial after the other in this process, without Ray.")
@click.option("--address", help="A running Ray cluster, HOST:PORT.  [default: start Ray here]")
def reproduce(
    name: str,
    full: bool,
    out: Path | None,
    changes: tuple[str, ...],
    actors: int | None,
    inline: bool,
    address: str | None,
) -> None:
    """Run a paper's table or figure (`raysim list reproductions`, or a file) as a study, and judge its claims."""
    from rich.console import Console

    with _stoppable() as stop:
        with Console(stderr=True).status("loading"):
            from raysim.reproduction import reproducing
            from raysim.reproduction.table import claims_table
            from raysim.studies.showing import board
        with board() as watcher:
            how = {"actors": actors, "inline": inline, "address": address, "watcher": watcher, "stop": stop}
            done = reproducing.reproduce(name, out, full=full, changes=changes, **how)
    screen = Console()
    screen.print(claims_table(done.claims))
    for path in (done.folder / "claims.md", done.folder / "report.html"):
        screen.print(f"written {path}", soft_wrap=True, highlight=False)


def _given(context: click.Context, parameter: click.Parameter, address: str | None) -> str:
    if not address:
        raise click.UsageError(
            "--address: must be given, the URL of the cluster's dashboard; write e.g. --address http://127.0.0.1:8265"
        )
    return address


ADDRESS = click.option(
    "--address",
    callback=_given,
    envvar=["RAY_API_SERVER_ADDRESS", "RAY_ADDRESS"],
    metavar="URL",
    help="The cluster's dashboard, http://HOST:8265.  [default: RAY_API_SERVER_ADDRESS, else RAY_ADDRESS]",
)
KEEP = click.option("--keep", is_flag=True, help="Leave the run's folder on the cluster, too.")


@cli.command()
@click.argument("experiment", metavar="FILE_OR_RECIPE")
@ADDRESS
@click.option(
    "--out", type=FOLDER_OR_URI, help="Folder here, or URI that is written there; new.  [default: runs/NAME-TIME]"
)
@click.option("--set", "changes", multiple=True, metavar="KEY.PATH=VALUE", help="As of `raysim run`; repeatable.")
@click.option(
    "--actors", type=int, help="Number of client actors.  [default: the file's, else as many as the nodes hold]"
)
@click.option(
    "--working-dir",
    type=click.Path(path_type=Path),
    help="A folder that the job works in a copy of.  [default: the file, its modules, and small data that it names]",
)
@click.option("--stage", metavar="DIR", help="Folder of the cluster that all nodes see.  [default: the head's /tmp]")
@KEEP
@click.option("--detach", is_flag=True, help="Send the job, and do not follow it.")
def submit(
    experiment: str,
    address: str,
    out: Path | str | None,
    changes: tuple[str, ...],
    actors: int | None,
    working_dir: Path | None,
    stage: str | None,
    keep: bool,
    detach: bool,
) -> None:
    """Run an experiment as a job of a Ray cluster, follow it, and fetch its folder."""
    with _stoppable():
        from raysim.cluster import following, submitting

        head, job = submitting.submit(
            experiment, address, out, changes=changes, actors=actors, working_dir=working_dir, stage=stage
        )
        again = f"raysim follow {job.id} --address {head.address}"
        if detach:
            click.echo(again)
        else:
            click.echo(f"job {job.id}", err=True)
            _show(following.finish(head, job, keep=keep))


@cli.command()
@click.argument("job")
@ADDRESS
@click.option("--out", type=click.Path(path_type=Path), help="Folder here.  [default: as it was submitted]")
@click.option("--stop", is_flag=True, help="Stop the job; what it has written is fetched.")
@KEEP
def follow(job: str, address: str, out: Path | None, stop: bool, keep: bool) -> None:
    """Follow a JOB that was submitted before, and fetch its folder."""
    with _stoppable():
        from raysim.cluster.following import finish
        from raysim.cluster.head import Head
        from raysim.cluster.submitting import ClusterJob

        head = Head(address)
        _show(finish(head, ClusterJob.of(head, job, out), stop=stop, keep=keep))


@contextmanager
def _shown() -> Iterator[tuple[ModuleType, dict[str, Any]]]:
    """Within, a run is shown and can be stopped: what runs it, and what it takes for that."""
    from rich.console import Console

    with _stoppable() as stop:
        with Console(stderr=True).status("loading"):
            from raysim.simulation import api
            from raysim.watching.progress import display
            from raysim.watching.remote import RemoteWatcher, is_followed
        with nullcontext(RemoteWatcher(sys.stdout)) if is_followed() else display() as watcher:
            yield api, {"watcher": watcher, "stop": stop}


@contextmanager
def _stoppable() -> Iterator[Stop]:
    """Within, Ctrl-C and SIGTERM ask for a stop, which ends the command in one line."""
    from raysim.simulation.stop import stopped_by_signals

    with stopped_by_signals() as stop:
        try:
            yield stop
        except KeyboardInterrupt as stopped:
            click.echo(str(stopped) or "interrupted", err=True)
            # As a shell has it, of whom a signal ends.
            raise click.exceptions.Exit(128 + stop.signal) from None


def _show(done: Run, *more: str) -> None:
    from rich.console import Console

    from raysim.watching.remote import is_followed

    if is_followed():  # whoever follows the run shows its results, once its folder is there
        return
    from raysim.cli.tables import results_table

    screen = Console()
    screen.print(results_table(done.results))
    kept = [] if done.uri is None else [f"kept    {done.uri}"]
    for line in (f"report  {done.report}", *kept, *more):
        screen.print(line, soft_wrap=True, highlight=False)


@cli.command()
@click.argument("folders", nargs=-1, required=True, type=FOLDER_OR_URI, metavar="DIR...")
@click.option("--out", type=click.Path(path_type=Path), help="The page to write.  [default: report.html]")
def report(folders: tuple[Path | str, ...], out: Path | None) -> None:
    """Write the report of one run, or of several side by side; or that of a study, and its tables."""
    from raysim.report.page import write_report
    from raysim.reproduction.section import section
    from raysim.studies.concluding import conclude
    from raysim.studies.read import is_study

    if len(folders) == 1 and is_study(Path(folders[0])):
        click.echo(conclude(Path(folders[0]), out, section(Path(folders[0]))))
        return
    default = Path(folders[0] if len(folders) == 1 and isinstance(folders[0], Path) else "", "report.html")
    click.echo(write_report(folders, out or default))


@cli.command("list")
@click.argument("kind", type=click.Choice(["algorithms", "models", "datasets", "recipes", "reproductions"]))
@click.argument("name", required=False)
def list_(kind: str, name: str | None) -> None:
    """List what experiment files can name, or the keys that an algorithm or a model of this NAME has."""
    from raysim.cli.tables import keys_of, listing

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
    from raysim.data.export import export as write

    for written in write(dataset, path, root=root, shifts=shifts, seed=seed):
        click.echo(written)


def main() -> None:
    """The console script."""
    run_command(cli, "raysim")
