"""The command line: `raysim run | resume | submit | follow | study | reproduce | report | list | export | devices`."""

from __future__ import annotations

import atexit
import os
import sys
from pathlib import Path
from typing import Any

import click

from partitioning.cli.exit_status import run_command
from partitioning.cli.paths import PATH
from partitioning.cli.terminal import echo
from partitioning.common.text import word
from raysim.cli.arguments import CHANGES, RUN_FLEET, STUDY_FLEET, STUDY_OUT, folder_or_uri
from raysim.cli.cluster import follow, submit
from raysim.cli.devices import devices
from raysim.cli.files import export, init, list_, recipe_names, show
from raysim.cli.sections import MOST_COLUMNS, Sections
from raysim.cli.shown import show_run, stoppable, uncollected, walls_of, watched
from raysim.common.distribution import VERSION
from raysim.common.names import CONFIG
from raysim.common.surface import shell

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
    with uncollected():
        from raysim.cli.early import check_run
        from raysim.simulation.options import RunOptions

        RunOptions(None, options["inline"], options["address"]).check_gpus(check_run(experiment, out=out, **options))
    with watched() as (api, watching):
        done = api.run(experiment, out, **options, **watching)
    elsewhere = "" if out is None else " and another --out"
    show_run(
        done,
        "next    open the report",
        f"        try another seed: the same command with --set seed=7{elsewhere}",
        f"        compare both: raysim report {word(done.uri or done.folder)} OTHER",
        walls=walls_of(done),
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
    with watched() as (api, watching):
        done = api.resume(folder, **options, **watching)
    show_run(done, walls=walls_of(done))


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

    with uncollected():
        from raysim.cli.early import check_study

        check_study(file, options["changes"])
    with stoppable() as stop:
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

    with stoppable() as stop:
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


for command in (list_, show, init, submit, follow, export, devices):
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
