"""Run as a job of a Ray cluster: submit it, show its progress as for a local run, and fetch its folder."""

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

from ray.job_submission import JobStatus

from partitioning.common.text import word
from partitioning.store.remote import is_uri
from raysim.cluster import parcel
from raysim.cluster.fetched import PATH_KEYS, checked_paths, relocate
from raysim.cluster.head import Head
from raysim.cluster.job_files import checked_folder, staged
from raysim.common.errors import InputError
from raysim.common.secrets import TRACKING_URI, without_secrets
from raysim.config.experiment import Experiment
from raysim.fleet.ray_private import PACKAGING, untold
from raysim.simulation.api import new_out, read_experiment
from raysim.simulation.place import with_actors
from raysim.watching.progress import Watcher
from raysim.watching.remote import FOLLOWED, replay

STAGE = "/tmp"
"""Default folder of the head for the runs of jobs."""

STOP_SECONDS = 60
"""Time that a stopped job has to end its round. Ray's default of 3 s is too short for many."""

JOB_ID = re.compile(rf"{parcel.FOLDER}[\w-]{{1,150}}")
"""Form of the id of a job that raysim sends; it is a safe name of a folder."""

LONGEST_NAME = 60
"""Most characters of the experiment's name in a job's id."""

COLOUR = re.compile(r"\x1b\[[0-9;]*m")
"""Sequence that colours the output of Ray's workers; other control characters are shown as escapes."""

ERROR_PREFIX = "raysim: "
"""Prefix of the command line's error message."""


@dataclass(frozen=True)
class ClusterJob:
    """Run on a cluster. The head stores these fields too, and another process can follow the job.

    Args:
        id: id of the job.
        stage: run's folder on the cluster.
        out: run's folder here, or the URI where it stays.
        paths: files and folders of this machine that the experiment names, by table and key.
    """

    id: str
    stage: str
    out: Path | str
    paths: Mapping[str, Any]

    @classmethod
    def of(cls, head: Head, job: str, out: Path | str | None = None) -> ClusterJob:
        """Return an earlier job by its id.

        Nothing that the head stores decides where this machine writes.

        Args:
            head: head of the cluster.
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
            stage, paths = str(stored["stage"]), checked_paths(stored["paths"])
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
            raise foreign from None
        if is_uri(stage):
            if str(out) != stage:
                raise InputError(
                    f"job {job!r}: its run is at a URI, which --out must name; if you trust it, add --out {word(stage)}"
                )
            return cls(job, stage, stage, paths)
        place = PurePosixPath(stage)
        if not place.is_absolute() or ".." in place.parts or place.parent.name != job:
            raise foreign
        return cls(job, stage, _new_place(Path("runs", job) if out is None else out), paths)

    @property
    def uri(self) -> str | None:
        """URI where the run stays; None for a folder here."""
        return self.out if isinstance(self.out, str) else None

    def here(self, text: str) -> str:
        """Replace the run's folder on the cluster by the folder here."""
        return text.replace(self.stage, str(self.out))

    @property
    def metadata(self) -> dict[str, str]:
        """Fields that the head stores with the job."""
        return {"raysim": json.dumps({"stage": self.stage, "paths": self.paths})}


class JobFailedError(RuntimeError):
    """Failure or stop of a run on the cluster."""


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
    stage = stage or STAGE
    if not PurePosixPath(stage).is_absolute():
        raise InputError(f"--stage = {stage!r}: must be an absolute path on the cluster; write e.g. /mnt/shared")
    out = _new_place(new_out(config, out))
    experiment = _checked(config, changes, actors, working_dir)
    head = Head(address)
    files = staged(config, experiment) if working_dir is None else nullcontext(checked_folder(working_dir, config))
    with files as (folder, file, moved):
        job = _job(config, stage, out, experiment)
        command = _command(file, job, (*changes, *moved), actors)
        variables = {FOLLOWED: "1", "RAY_JOB_STOP_WAIT_TIME_S": str(STOP_SECONDS)}
        head.submit(command, job.id, {"working_dir": str(folder), "env_vars": variables}, job.metadata)
    return head, job


def follow(head: Head, job: ClusterJob, watcher: Watcher) -> None:
    """Show the progress of a job until it ends.

    Raises:
        InputError: the cluster refused the experiment.
        JobFailedError: the run failed or was stopped.
        HeadLostError: the head does not answer any more.
    """
    if lacking := untold(PACKAGING):
        watcher.notice(lacking)
    message, last = "", ""
    for coloured in head.lines(job.id):
        line = COLOUR.sub("", coloured)
        if line.startswith(ERROR_PREFIX):
            message = job.here(line.removeprefix(ERROR_PREFIX))
        elif not replay(line, watcher, job.here):
            watcher.line(job.here(line))
            last = line.strip() or last
    details = head.details(job.id)
    if details.status is JobStatus.SUCCEEDED:
        return
    if details.driver_exit_code == 2 and message:
        raise InputError(message)
    if details.status is JobStatus.STOPPED:
        raise JobFailedError(f"job {job.id} was stopped")
    status = f"exit status {details.driver_exit_code}" if details.driver_exit_code is not None else details.error_type
    raise JobFailedError(message or f"job {job.id} failed ({status}): {last}")


def fetch(head: Head, job: ClusterJob, keep: bool = False) -> bool:
    """Fetch the folder of an ended run.

    Args:
        head: head of the cluster.
        job: job of the run.
        keep: whether the cluster's copy stays.

    Returns:
        Whether there was a folder.

    Raises:
        ParcelError: the folder is too large or was damaged on the way.
    """
    out = _new_folder(Path(job.out))
    sender = f"{job.id}-parcel-{secrets.token_hex(3)}"
    command = f"python -m raysim.cluster.parcel send {shlex.quote(job.stage)}"
    head.submit(command, sender, {}, {})
    there = parcel.receive(head.lines(sender), out, complete=lambda folder: relocate(folder, job.paths))
    if not keep:
        command = f"python -m raysim.cluster.parcel remove {shlex.quote(job.stage)}"
        head.submit(command, f"{sender}-end", {}, {})
    return there


def _new_place(out: Path | str) -> Path | str:
    """Return the absolute path of a run's new folder, or its URI, which the run itself checks."""
    return str(out) if is_uri(out) else _new_folder(Path(out))


def _new_folder(out: Path) -> Path:
    """Return the absolute path of a run's new folder.

    Raises:
        InputError: it exists and is not empty, or is a link.
    """
    if out.is_symlink() or out.is_file() or (out.is_dir() and any(out.iterdir())):
        what = "is a link" if out.is_symlink() else "exists and is not empty"
        raise InputError(f"--out = {str(out)!r} {what}: must be a new folder; choose another, or remove it")
    return out.absolute()


def _checked(config: str, changes: Sequence[str], actors: int | None, working_dir: Path | None) -> Experiment:
    """Return the experiment; its relative paths begin in the working folder, or here without one."""
    file = str(Path(config).resolve()) if Path(config).is_file() else config
    with chdir(working_dir) if working_dir is not None and working_dir.is_dir() else nullcontext():
        experiment = with_actors(read_experiment(file, changes), actors)
    tables = experiment.to_toml()
    if without_secrets(tables) != json.loads(json.dumps(tables)):
        raise InputError(
            "a URI of the experiment has a password: must have none in a job, whose files and command the cluster's "
            f"dashboard shows; write *** in its place, and set for example {TRACKING_URI} here and on the cluster"
        )
    return experiment


def _job(config: str, stage: str, out: Path | str, experiment: Experiment) -> ClusterJob:
    name = re.sub(r"[^\w-]", "-", Path(config).stem)[:LONGEST_NAME]
    job_id = f"{parcel.FOLDER}{name}-{datetime.now():%Y%m%d-%H%M%S}-{secrets.token_hex(3)}"
    table = experiment.to_toml()
    paths = {part: {key: table[part][key] for key in keys if key in table[part]} for part, keys in PATH_KEYS.items()}
    run_folder = str(PurePosixPath(stage, job_id, out.name)) if isinstance(out, Path) else out
    return ClusterJob(job_id, run_folder, out, {**paths, "modules": table.get("modules")})


def _command(file: str, job: ClusterJob, changes: Sequence[str], actors: int | None) -> str:
    """Return the shell command of the job."""
    settings = [part for change in changes for part in ("--set", change)]
    given = [] if actors is None else ["--actors", str(actors)]
    run = shlex.join(["exec", "python", "-m", "raysim", "run", file, "--out", job.stage, *settings, *given])
    if job.uri is not None:
        return run
    # Only its owner may read the folder, because everybody may read the default /tmp.
    make = ["mkdir", "-p", "-m", "700", str(PurePosixPath(job.stage).parent)]
    return f"{shlex.join(make)} && {run}"
