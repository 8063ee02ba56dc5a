"""Commands for a running Ray cluster: `raysim submit | follow`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from partitioning.cli.paths import PATH
from partitioning.cli.terminal import echo
from raysim.cli.arguments import CHANGES, folder_or_uri
from raysim.cli.shown import show_run, stoppable, uncollected


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


@click.command()
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
        with uncollected():
            from raysim.cli.early import check_run

            check_run(experiment, options["changes"], out, options["actors"])
    with stoppable():
        from raysim.cluster import following, submitting

        head, job = submitting.submit(experiment, address, out, **options)
        if detach:
            echo(following.follow_command(head, job))
        else:
            echo(f"job {job.id}", err=True)
            show_run(following.finish(head, job, keep=keep))


@click.command()
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
    with stoppable():
        from raysim.cluster.following import finish
        from raysim.cluster.head import Head
        from raysim.cluster.submitting import ClusterJob

        head = Head(address)
        show_run(finish(head, ClusterJob.of(head, job, out), stop=stop, keep=keep))
