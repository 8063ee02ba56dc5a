"""The command line: `raysim run | resume | submit | follow | study | reproduce | report | list | export | devices`."""

from __future__ import annotations

import atexit
import gc
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from functools import reduce
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import TYPE_CHECKING, Any, TypeVar

import click

from partitioning.cli.exit_status import run_command
from partitioning.cli.paths import PATH
from partitioning.cli.terminal import echo
from partitioning.common.paths import check_path
from partitioning.common.text import word
from raysim.cli.devices import devices
from raysim.cli.files import export, init, list_, recipe_names, show
from raysim.cli.sections import MOST_COLUMNS, Sections
from raysim.common.distribution import VERSION
from raysim.common.names import CONFIG, REPORT
from raysim.common.surface import shell

if TYPE_CHECKING:  # These imports take seconds.
    from raysim.cluster.following import FetchedRun
    from raysim.simulation.finished import Run
    from raysim.simulation.stop import Stop


def folder_or_uri(value: str) -> Path | str:
    """Return a local folder as a path, and a URI as text."""
    if "://" not in value:  # the exact check imports pyarrow
        return check_path("the folder", value)
    from partitioning.store.remote import is_uri

    return str(value) if is_uri(value) else check_path("the folder", value)


CHANGES = click.option(
    "--set",
    "changes",
    multiple=True,
    metavar="KEY.PATH=VALUE",
    help="Change a key of the file; algorithm.KEY changes all algorithms, algorithm.NAME.KEY one. Repeatable.",
)
STUDY_OUT = click.option(
    "--out", type=PATH, help="Folder of the study; an existing study continues.  [default: runs/NAME-TIME]"
)
Command = TypeVar("Command", bound=Callable[..., None])


def fleet_options(actors: str, inline: str) -> Callable[[Command], Command]:
    """Return a decorator that adds `--actors`, `--inline` and `--address` with these help texts."""
    options = (
        click.option("--actors", type=int, help=actors),
        click.option("--inline", is_flag=True, help=inline),
        click.option("--address", help="Address of a running Ray cluster, HOST:PORT.  [default: start Ray here]"),
    )
    return lambda command: reduce(lambda inner, option: option(inner), reversed(options), command)


RUN_FLEET = fleet_options(
    "Number of client actors.  [default: the file's, else one per core, once the run proves long]",
    "Run in this process, without Ray.",
)
STUDY_FLEET = fleet_options(
    "Number of parallel trials, or of client actors per trial.  [default: one per core]",
    "Run one trial after the other in this process, without Ray.",
)


SECTIONS = {
    "Begin": ("init", "list", "show"),
    "Run": ("run", "resume", "report"),
    "Many runs": ("study", "reproduce"),
    "On a Ray cluster": ("submit", "follow"),
    "Data and devices": ("export", "devices"),
}
"""All commands, by the headings of the help."""


@click.group(
    cls=Sections,
    sections=SECTIONS,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": MOST_COLUMNS},
    invoke_without_command=True,
)
@click.version_option(VERSION)
@click.pass_context
def cli(context: click.Context) -> None:
    """Simulate federated learning, with the same bytes on any number of actors."""
    context.with_resource(shell())
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


@cli.command()
@click.argument("experiment", metavar="FILE_OR_RECIPE", shell_complete=recipe_names)
@click.option(
    "--out", type=folder_or_uri, metavar="PATH", help="New folder of the run, or its URI.  [default: runs/NAME-TIME]"
)
@CHANGES
@RUN_FLEET
def run(experiment: str, out: Path | str | None, **options: Any) -> None:
    """Run an experiment file or recipe.

    `raysim list recipes` lists the recipes.
    """
    with _uncollected():
        from raysim.cli.early import check_run
        from raysim.simulation.options import RunOptions

        RunOptions(None, options["inline"], options["address"]).check_gpus(check_run(experiment, out=out, **options))
    with _shown() as (api, watching):
        done = api.run(experiment, out, **options, **watching)
    elsewhere = "" if out is None else " and another --out"
    _show(
        done,
        "next    open the report",
        f"        try another seed: the same command with --set seed=7{elsewhere}",
        f"        compare both: raysim report {word(done.uri or done.folder)} OTHER",
        walls=_walls(done),
    )


def _refuse_changes(context: click.Context, parameter: click.Parameter, changes: tuple[str, ...]) -> None:
    if changes:
        raise click.UsageError(
            f"--set {changes[0]}: must be left out, because a run resumes with the keys that it began with; edit keys "
            f"that change no result in DIR/{CONFIG}, or begin another run: raysim run DIR/{CONFIG} --set "
            f"{word(changes[0])}"
        )


@cli.command()
@click.argument("folder", type=folder_or_uri, metavar="DIR")
@click.option("--set", multiple=True, hidden=True, expose_value=False, callback=_refuse_changes)
@RUN_FLEET
def resume(folder: Path | str, **options: Any) -> None:
    """Continue a stopped run.

    DIR is the folder or URI of the run, or of one of its algorithms.
    """
    with _shown() as (api, watching):
        done = api.resume(folder, **options, **watching)
    _show(done, walls=_walls(done))


@cli.command()
@click.argument("file", metavar="FILE_OR_RECIPE_OR_DIR")
@STUDY_OUT
@CHANGES
@STUDY_FLEET
def study(file: str, out: Path | None, **options: Any) -> None:
    """Run or continue a study.

    The argument is a study file, a recipe, or the folder of a study. Finished trials are not run again.
    """
    from partitioning.cli.console import Console

    with _uncollected():
        from raysim.cli.early import check_study

        check_study(file, options["changes"])
    with _stoppable() as stop:
        with Console(stderr=True).status("loading"):
            from raysim.studies import studying
            from raysim.studies.read import read_findings
            from raysim.studies.search import edge_notes
            from raysim.studies.showing import board
            from raysim.studies.tables import progress_table
        with board() as watcher:
            done = studying.study(file, out, watcher=watcher, stop=stop, **options)
    screen = Console()
    screen.print(progress_table(done))
    for line in edge_notes(read_findings(done.folder)) if done.trials.num_rows else ():
        screen.print(line, highlight=False)
    for path in (done.folder / "table.md", done.folder / "report.html"):
        if path.exists():
            screen.print(f"written {path}", soft_wrap=True, highlight=False)


@cli.command()
@click.argument("name")
@click.option("--full", is_flag=True, help="Use the paper's setting instead of a reduced one.")
@STUDY_OUT
@CHANGES
@STUDY_FLEET
def reproduce(name: str, full: bool, out: Path | None, **options: Any) -> None:
    """Reproduce a paper's table or figure.

    raysim runs it as a study and judges the paper's claims. `raysim list reproductions` lists the names. NAME may also
    be a file.
    """
    from partitioning.cli.console import Console

    with _stoppable() as stop:
        with Console(stderr=True).status("loading"):
            from raysim.cli.tables import claims_table
            from raysim.reproduction import reproducing
            from raysim.studies.showing import board
        with board() as watcher:
            folder, claims = reproducing.reproduce(name, out, full=full, watcher=watcher, stop=stop, **options)
    screen = Console()
    screen.print(claims_table(claims))
    for path in (folder / "claims.md", folder / "report.html"):
        screen.print(f"written {path}", soft_wrap=True, highlight=False)


def _require_address(context: click.Context, parameter: click.Parameter, address: str | None) -> str:
    if not address:
        raise click.UsageError(
            "--address: must be given, the URL of the cluster's dashboard; write e.g. --address http://127.0.0.1:8265"
        )
    return address


DASHBOARD = click.option(
    "--address",
    callback=_require_address,
    envvar=["RAY_API_SERVER_ADDRESS", "RAY_ADDRESS"],
    metavar="URL",
    help="Dashboard of the cluster, http://HOST:8265.  [default: RAY_API_SERVER_ADDRESS, else RAY_ADDRESS]",
)
KEEP = click.option("--keep", is_flag=True, help="Leave a copy of the run's folder on the cluster.")


@cli.command()
@click.argument("experiment", metavar="FILE_OR_RECIPE")
@DASHBOARD
@click.option(
    "--out",
    type=folder_or_uri,
    metavar="PATH",
    help="New local folder, or a URI for the job.  [default: runs/NAME-TIME]",
)
@CHANGES
@click.option(
    "--actors", type=int, help="Number of client actors.  [default: the file's, else as many as the nodes hold]"
)
@click.option(
    "--working-dir",
    type=PATH,
    help="Folder to copy to the job.  [default: the file, its modules, and small data that it names]",
)
@click.option("--stage", metavar="DIR", help="Cluster folder that all nodes share.  [default: /tmp of the head node]")
@KEEP
@click.option("--detach", is_flag=True, help="Submit the job without following it.")
def submit(experiment: str, address: str, out: Path | str | None, keep: bool, detach: bool, **options: Any) -> None:
    """Run an experiment on a Ray cluster.

    raysim submits a Ray job, follows it, and fetches the folder of the run.
    """
    if options["working_dir"] is None:
        with _uncollected():
            from raysim.cli.early import check_run

            check_run(experiment, options["changes"], out, options["actors"])
    with _stoppable():
        from raysim.cluster import following, submitting

        head, job = submitting.submit(experiment, address, out, **options)
        if detach:
            echo(following.follow_command(head, job))
        else:
            echo(f"job {job.id}", err=True)
            _show(following.finish(head, job, keep=keep))


@cli.command()
@click.argument("job")
@DASHBOARD
@click.option(
    "--out", type=folder_or_uri, metavar="PATH", help="New local folder, or the URI of the run.  [default: runs/JOB]"
)
@click.option("--stop", is_flag=True, help="Stop the job and fetch the files so far.")
@KEEP
def follow(job: str, address: str, out: Path | str | None, stop: bool, keep: bool) -> None:
    """Follow a submitted job.

    raysim fetches the folder of the run when JOB ends.
    """
    with _stoppable():
        from raysim.cluster.following import finish
        from raysim.cluster.head import Head
        from raysim.cluster.submitting import ClusterJob

        head = Head(address)
        _show(finish(head, ClusterJob.of(head, job, out), stop=stop, keep=keep))


@contextmanager
def _shown() -> Iterator[tuple[ModuleType, dict[str, Any]]]:
    """Show a run and let the user stop it; yield the module that runs it and its arguments for that."""
    from partitioning.cli.console import Console

    with _stoppable() as stop:
        with Console(stderr=True).status("loading"), _uncollected():
            from raysim.simulation import api
            from raysim.watching.progress import display
            from raysim.watching.remote import RemoteWatcher, is_followed
            from raysim.watching.stopwatch import process_started
        with nullcontext(RemoteWatcher(sys.stdout)) if is_followed() else display() as watcher:
            yield api, {"watcher": watcher, "stop": stop, "started": process_started()}


@contextmanager
def _stoppable() -> Iterator[Stop]:
    """Turn Ctrl-C and SIGTERM into a request to stop, and end the command with one line."""
    from raysim.simulation.stop import stopped_by_signals

    with stopped_by_signals() as stop:
        try:
            yield stop
        except KeyboardInterrupt as stopped:
            echo(str(stopped) or "interrupted", err=True)
            # A shell reports the same status for a program that a signal ended.
            raise click.exceptions.Exit(128 + stop.signal) from None


def _show(done: Run | FetchedRun, *more: str, walls: Mapping[str, float] = MappingProxyType({})) -> None:
    from partitioning.cli.console import Console
    from raysim.watching.remote import is_followed

    if is_followed():  # The follower shows the results when it has the folder.
        return
    from raysim.cli.tables import results_table
    from raysim.config.read import read
    from raysim.measures.epsilon.outside_epsilon import SENTENCE

    screen = Console()
    evaluate = read(done.folder / CONFIG).get("evaluate", {})
    screen.print(results_table(done.results, walls, evaluate.get("metrics", ()), screen.width))
    if any(result.epsilon is not None for result in done.results):
        screen.print(SENTENCE, highlight=False)
    stored = [] if done.uri is None else [f"stored  {done.uri}"]
    for line in (f"report  {done.folder / REPORT}", *stored, *more):
        screen.print(line, soft_wrap=True, highlight=False)


def _walls(done: Run) -> dict[str, float]:
    """Return the wall-clock seconds of each algorithm, over all commands of the run."""
    from raysim.store.wall_clock import read_commands

    walls: dict[str, float] = {}
    for each in (each for command in read_commands(done.folder) for each in command.stages if each.algorithm):
        walls[each.algorithm] = walls.get(each.algorithm, 0.0) + each.seconds
    return walls


@cli.command()
@click.argument("folders", nargs=-1, required=True, type=folder_or_uri, metavar="DIR...")
@click.option("--out", type=PATH, help="Page to write.  [default: report.html]")
def report(folders: tuple[Path | str, ...], out: Path | None) -> None:
    """Write the report of runs or of a study.

    Several runs stand side by side.
    """
    from raysim.report.page import write_report
    from raysim.reproduction.page import section
    from raysim.studies.concluding import conclude
    from raysim.studies.read import only_study

    if (study_folder := only_study(folders)) is not None:
        echo(conclude(study_folder, out, section(study_folder)))
        return
    default = Path(folders[0] if len(folders) == 1 and isinstance(folders[0], Path) else "", "report.html")
    echo(write_report(folders, out or default))


@contextmanager
def _uncollected() -> Iterator[None]:
    """Search for no garbage in the context, and never among its objects: imports leave a million that stay."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


for command in (list_, show, init, export, devices):
    cli.add_command(command)


def main() -> None:
    """Run the command line as the program of this process, and end the process."""
    status = 1

    def leave() -> None:
        # Python's end would search all of torch's objects for garbage, which takes a second.
        try:
            for stream in filter(None, (sys.stdout, sys.stderr)):
                stream.flush()
        finally:
            os._exit(status)

    # The first to be registered runs last, when all others have put away what is theirs.
    atexit.register(leave)
    try:
        run_command(cli, "raysim")
    except SystemExit as ended:
        status = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
        raise
