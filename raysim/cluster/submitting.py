"""Submit a run as a job of a Ray cluster, after checking its experiment here."""

from __future__ import annotations

import json
import re
import secrets
import shlex
from collections.abc import Mapping, Sequence
from contextlib import chdir, nullcontext
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path, PurePosixPath
from typing import Any

from partitioning.common.text import word
from partitioning.store.remote import is_uri
from raysim.cluster.head import Head
from raysim.cluster.job_files import checked_folder, staged
from raysim.common.errors import InputError
from raysim.common.names import check_new
from raysim.common.secrets import TRACKING_URI, without_secrets
from raysim.common.surface import assigned
from raysim.config.experiment import Experiment
from raysim.simulation.api import new_out, read_experiment
from raysim.simulation.place import Place
from raysim.store.config_file import paths_of
from raysim.watching.remote import FOLLOWED

STOP_SECONDS = 60  # for a stopped job to end its round. Ray's default of 3 s is too short for many
LONGEST_NAME = 60  # characters of the experiment's name in a job's id

JOB_ID = re.compile(r"raysim-[\w-]{1,150}")
"""Form of the id of a job that raysim sends; it is a safe name of a folder."""


@dataclass(frozen=True)
class ClusterJob:
    """Run on a cluster. The head stores these fields too, and another process can follow the job.

    Args:
        id: id of the job.
        stage: run's folder on the cluster, in a folder of the job's own.
        out: run's folder here, or the URI where it stays.
        paths: paths here by the experiment's keys, for a resume here.
    """

    id: str
    stage: str
    out: Path | str
    paths: Mapping[str, Any]

    @classmethod
    def of(cls, head: Head, job: str, out: Path | str | None = None) -> ClusterJob:
        """Return an earlier job; nothing that the head stores decides where this machine writes.

        Args:
            job: id of the job.
            out: new folder here; default `runs/JOB`. For a run at a URI, that URI.

        Raises:
            InputError: there is no job of that id, raysim did not send it, or `out` is wrong.
        """
        foreign = InputError(f"job {job!r}: must be a job of `raysim submit`; see the list in the cluster's dashboard")
        if not JOB_ID.fullmatch(job):
            raise foreign
        metadata = head.details(job).metadata or {}
        try:
            stored = json.loads(metadata["raysim"])
            stage, paths = str(stored["stage"]), dict(stored["paths"])
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
            raise foreign from None
        place = PurePosixPath(stage)
        if is_uri(stage):
            if str(out) != stage:
                raise InputError(
                    f"job {job!r}: its run is at a URI, which --out must name; if you trust it, add --out {word(stage)}"
                )
        elif not place.is_absolute() or ".." in place.parts or place.parent.name != job:
            raise foreign
        return cls(job, stage, new_place(Path("runs", job) if out is None else out), paths)

    @property
    def uri(self) -> str | None:
        """URI where the run stays; None for a folder here."""
        return self.out if isinstance(self.out, str) else None


def submit(
    config: str,
    address: str,
    out: Path | str | None = None,
    *,
    changes: Sequence[str] = (),
    actors: int | None = None,
    working_dir: Path | None = None,
    stage: str | None = None,
) -> tuple[Head, ClusterJob]:
    """Send a run to a cluster as a job, after checking its experiment.

    Args:
        config: experiment file, or name of a recipe.
        address: URL of the cluster's dashboard.
        out: new folder here, or URI of the run; default `runs/NAME-TIME`.
        changes: settings `key.path=value`, applied to the file.
        actors: number of client actors instead of the file's; never changes the result.
        working_dir: folder with the file that is sent whole; default: the files that the experiment needs.
        stage: folder of the cluster that all nodes see, for the run's folder; default the head's `/tmp`.

    Raises:
        InputError: the experiment, the address or the files to send are wrong.
    """
    if not PurePosixPath(stage := stage or "/tmp").is_absolute():
        raise InputError(f"--stage = {stage!r}: must be an absolute path on the cluster; write e.g. /mnt/shared")
    out = new_place(new_out(config, out))
    experiment = _checked(config, changes, actors, working_dir)
    head = Head(address)
    files = staged(config, experiment) if working_dir is None else nullcontext(checked_folder(working_dir, config))
    name = re.sub(r"[^\w-]", "-", Path(config).stem)[:LONGEST_NAME]
    job_id = f"raysim-{name}-{datetime.now():%Y%m%d-%H%M%S}-{secrets.token_hex(3)}"
    run_folder = str(PurePosixPath(stage, job_id, out.name)) if isinstance(out, Path) else out
    job = ClusterJob(job_id, run_folder, out, paths_of(experiment.to_toml()))
    with files as (folder, file, moved):
        command = _command(file, job, (*changes, *moved), actors)
        variables = {FOLLOWED: "1", "RAY_JOB_STOP_WAIT_TIME_S": str(STOP_SECONDS)}
        stored = {"raysim": json.dumps({"stage": job.stage, "paths": job.paths})}
        head.submit(command, job.id, stored, working_dir=str(folder), env_vars=variables)
    return head, job


def new_place(out: Path | str) -> Path | str:
    """Return a run's URI, which the run itself checks, or the absolute path of its folder if that is new."""
    if is_uri(out):
        return str(out)
    if Path(out).is_symlink():
        raise InputError(f"{assigned('out', str(out))} is a link: must be a new folder; choose another, or remove it")
    check_new(Path(out))
    return Path(out).absolute()


def _checked(config: str, changes: Sequence[str], actors: int | None, working_dir: Path | None) -> Experiment:
    """Return the experiment; its relative paths begin in the working folder, or here without one."""
    file = str(Path(config).resolve()) if Path(config).is_file() else config
    with chdir(working_dir) if working_dir is not None and working_dir.is_dir() else nullcontext():
        experiment = Place(actors).placed(read_experiment(file, changes))
    tables = experiment.to_toml()
    if without_secrets(tables) != json.loads(json.dumps(tables)):
        raise InputError(
            "a URI of the experiment has a password: must have none in a job, whose files and command the cluster's "
            f"dashboard shows; write *** in its place, and set for example {TRACKING_URI} here and on the cluster"
        )
    return experiment


def _command(file: str, job: ClusterJob, changes: Sequence[str], actors: int | None) -> str:
    options = [part for change in changes for part in ("--set", change)]
    options += [] if actors is None else ["--actors", str(actors)]
    run = shlex.join(["exec", "python", "-m", "raysim", "run", file, "--out", job.stage, *options])
    # Only its owner may read the job's folder, because everybody may read the default /tmp.
    make = ["mkdir", "-p", "-m", "700", str(PurePosixPath(job.stage).parent)]
    return run if job.uri is not None else f"{shlex.join(make)} && {run}"
