"""A run as a job of a Ray cluster: sent, followed with the same progress as one here, and fetched back."""

from __future__ import annotations

import json
import re
import secrets
import shlex
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import chdir, contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path, PurePosixPath
from typing import Any

from ray.job_submission import JobStatus

from partitioning.store.remote import is_uri
from raysim.cluster import parcel
from raysim.cluster.head import Head
from raysim.cluster.sending import Sent, staged, whole
from raysim.common.errors import InputError
from raysim.config.experiment import Experiment
from raysim.simulation.api import place_of, resolved
from raysim.simulation.options import with_actors
from raysim.store.run_folder import write_config
from raysim.watching.progress import Watcher
from raysim.watching.remote import FOLLOWED, replay

STAGE = "/tmp"
"""Where a job's run is written unless something else is said: a folder of the head."""

STOP_SECONDS = 60
"""How long a job that is asked to stop has to end its round; Ray's own 3 seconds are not enough for many."""

PLACES = {"data": ("dataset", "root", "population", "test"), "model": ("weights",)}
"""Keys of a run's experiment that say where something is, beside `modules`."""

COMPLAINT = "raysim: "
"""What the line begins with that a command ends with where it did not succeed."""


@dataclass(frozen=True)
class Job:
    """A run on a cluster; all of it is kept there, too, so that another process can go on following.

    Args:
        id: of the job.
        stage: the run's folder there.
        out: the run's folder here; or its URI, where it is kept and nothing is fetched.
        places: where this machine has what the experiment names, by table and key.
    """

    id: str
    stage: str
    out: Path | str
    places: Mapping[str, Any]

    @classmethod
    def of(cls, head: Head, job: str, out: Path | None = None) -> Job:
        """A job that was sent before, with another folder here where one is given.

        Raises:
            InputError: there is none of that id, or it is none of ours.
        """
        metadata = head.details(job).metadata or {}
        if "raysim" not in metadata:
            raise InputError(
                f"job {job!r}: must be one that `raysim submit` sent; see the list in the cluster's dashboard"
            )
        stored = json.loads(metadata["raysim"])
        return cls(job, stored["stage"], _new_place(out or stored["out"]), stored["places"])

    @property
    def uri(self) -> str | None:
        """Where the run is kept, if not in a folder here."""
        return self.out if isinstance(self.out, str) else None

    def here(self, text: str) -> str:
        """What is said there of the run's folder, said of the folder here."""
        return text.replace(self.stage, str(self.out))

    @property
    def metadata(self) -> dict[str, str]:
        """What is kept with the job."""
        return {"raysim": json.dumps({"stage": self.stage, "out": str(self.out), "places": self.places})}


class JobFailedError(RuntimeError):
    """The run failed on the cluster, or was stopped there; what it wrote is here where the message says so."""


def submit(
    config: str,
    address: str,
    out: Path | str | None = None,
    *,
    changes: Sequence[str] = (),
    actors: int | None = None,
    working_dir: Path | None = None,
    stage: str | None = None,
) -> tuple[Head, Job]:
    """Send a run to a cluster as a job; nothing is sent where the experiment is wrong.

    Args:
        config: an experiment's file, or a recipe's name.
        address: URL of the cluster's dashboard.
        out: the run's folder here, which must be new, or a URI; default `runs/NAME-TIME`.
        changes: `key.path=value` each, applied to the file.
        actors: client actors, instead of the file's; never changes the result.
        working_dir: a folder that is sent whole, and has the file; default: what the experiment needs.
        stage: folder of the cluster that all nodes see, in which the run's is made; default the head's `/tmp`.

    Raises:
        InputError: of the experiment, of the address, of what is to be sent.
    """
    stage = stage or STAGE
    if not PurePosixPath(stage).is_absolute():
        raise InputError(f"--stage = {stage!r}: must be an absolute path on the cluster; write e.g. /mnt/shared")
    out = _new_place(place_of(config, out))
    experiment = _checked(config, changes, actors, working_dir)
    head = Head(address)
    with _prepared(config, experiment, working_dir) as sent:
        job = _job(config, stage, out, experiment)
        command = _command(sent, job, changes, actors)
        variables = {FOLLOWED: "1", "RAY_JOB_STOP_WAIT_TIME_S": str(STOP_SECONDS)}
        head.submit(command, job.id, {"working_dir": str(sent.folder), "env_vars": variables}, job.metadata)
    return head, job


def follow(head: Head, job: Job, watcher: Watcher) -> None:
    """Show what a job does until it has ended.

    Raises:
        InputError: the cluster refused the experiment.
        JobFailedError: the run failed, or was stopped.
        HeadLostError: the head does not answer any more.
    """
    said, last = "", ""
    for line in head.lines(job.id):
        if line.startswith(COMPLAINT):
            said = job.here(line.removeprefix(COMPLAINT))
        elif not replay(line, watcher, job.here):
            watcher.line(job.here(line))
            last = line.strip() or last
    details = head.details(job.id)
    if details.status is JobStatus.SUCCEEDED:
        return
    if details.driver_exit_code == 2 and said:
        raise InputError(said)
    if details.status is JobStatus.STOPPED:
        raise JobFailedError(f"job {job.id} was stopped")
    status = f"exit status {details.driver_exit_code}" if details.driver_exit_code is not None else details.error_type
    raise JobFailedError(said or f"job {job.id} failed ({status}): {last}")


def fetch(head: Head, job: Job, keep: bool = False) -> bool:
    """Bring the folder of a run that has ended here, as if it had been written here.

    Args:
        head: of the cluster.
        job: the run's.
        keep: whether the cluster's copy stays.

    Returns:
        whether there was one.

    Raises:
        ParcelError: it is too large, or what came is not what was sent.
    """
    out = _new_folder(Path(job.out))
    sender = f"{job.id}-parcel-{secrets.token_hex(3)}"
    command = f"python -m raysim.cluster.parcel send {shlex.quote(job.stage)}"
    head.submit(command, sender, {}, {})
    there = parcel.receive(head.lines(sender), out)
    if there:
        relocate(out, job)
    if not keep:
        command = f"python -m raysim.cluster.parcel remove {shlex.quote(job.stage)}"
        head.submit(command, f"{sender}-end", {}, {})
    return there


@contextmanager
def _prepared(config: str, experiment: Experiment, working_dir: Path | None) -> Iterator[Sent]:
    """Within, what is sent is there: a folder of the user's, or one with what the experiment needs."""
    if working_dir is not None:
        yield whole(working_dir, config)
        return
    with staged(config, experiment) as sent:
        yield sent


def _new_place(out: Path | str) -> Path | str:
    """Where a run's folder will be: the absolute path, or the URI, which the run itself has to find empty."""
    return str(out) if is_uri(out) else _new_folder(Path(out))


def _new_folder(out: Path) -> Path:
    """The absolute path of a run's folder.

    Raises:
        InputError: it is there already.
    """
    if out.is_file() or (out.is_dir() and any(out.iterdir())):
        raise InputError(
            f"--out = {str(out)!r} exists and is not empty: must be a new folder; choose another, or remove it"
        )
    return out.absolute()


def _checked(config: str, changes: Sequence[str], actors: int | None, working_dir: Path | None) -> Experiment:
    """The experiment; paths in it begin in the folder that is sent, where there is one, and here otherwise."""
    file = str(Path(config).resolve()) if Path(config).is_file() else config
    if working_dir is None or not working_dir.is_dir():
        return with_actors(resolved(file, changes), actors)
    with chdir(working_dir):
        return with_actors(resolved(file, changes), actors)


def _job(config: str, stage: str, out: Path | str, experiment: Experiment) -> Job:
    name = re.sub(r"[^\w-]", "-", Path(config).stem)
    ours = f"{parcel.FOLDER}{name}-{datetime.now():%Y%m%d-%H%M%S}-{secrets.token_hex(3)}"
    table = experiment.to_toml()
    places = {part: {key: table[part][key] for key in keys if key in table[part]} for part, keys in PLACES.items()}
    there = str(PurePosixPath(stage, ours, out.name)) if isinstance(out, Path) else out
    return Job(ours, there, out, {**places, "modules": table.get("modules")})


def _command(sent: Sent, job: Job, changes: Sequence[str], actors: int | None) -> str:
    settings = [part for change in (*changes, *sent.changes) for part in ("--set", change)]
    given = [] if actors is None else ["--actors", str(actors)]
    run = shlex.join(["exec", "python", "-m", "raysim", "run", sent.file, "--out", job.stage, *settings, *given])
    if job.uri is not None:
        return run
    # A folder that only its owner may read, for the default is in one that is everybody's.
    make = ["mkdir", "-p", "-m", "700", str(PurePosixPath(job.stage).parent)]
    return f"{shlex.join(make)} && {run}"


def relocate(folder: Path, job: Job) -> None:
    """Let the experiment of a job's run name what this machine has, so that the run can go on here."""
    path = folder / "config.toml"
    if not path.is_file():
        return
    config = tomllib.loads(path.read_text(encoding="utf-8"))
    for part in PLACES:
        config[part] = {**config[part], **job.places[part]}
    if job.places["modules"] is not None:
        config["modules"] = job.places["modules"]
    write_config(path, config)
