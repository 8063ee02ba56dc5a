"""Submit a run as a job of a Ray cluster, after checking its experiment here.

The experiment's file, the user's own modules and small data files go with the job.
"""

from __future__ import annotations

import json
import re
import secrets
import shlex
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import chdir, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import Any

from partitioning.common.text import word
from partitioning.store.remote import is_uri
from raysim.cluster.head import UNWANTED, Head
from raysim.common.errors import InputError
from raysim.common.names import check_new
from raysim.common.secrets import TRACKING_URI, without_secrets
from raysim.common.surface import assigned
from raysim.config.experiment import Experiment
from raysim.config.own_files import own_files
from raysim.fleet.ray_private import sent_limit, sent_sizes
from raysim.simulation.api import new_out, read_experiment
from raysim.simulation.options import RunOptions
from raysim.store.config_file import paths_of
from raysim.watching.remote import FOLLOWED

STOP_SECONDS = 60  # for a stopped job to end its round. Ray's default of 3 s is too short for many
LONGEST_NAME = 60  # characters of the experiment's name in a job's id

MAX_DATA = 64 * 2**20  # bytes of data that may go with a job: all of it passes through the memory of the head
NAMED_ENTRIES = 3  # largest entries that the message about a large folder names

NAMED_THERE = "put it on storage that the cluster sees and name its path there"  # remedy for large data

JobFiles = tuple[Path, str, tuple[str, ...]]
"""Working folder of a job, the experiment's name there, and a `key.path=value` for each file that has moved."""

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
        elif is_uri(out):
            raise InputError(
                f"--out = {out!r}: must be a folder here, because job {job!r} has its run at no URI; name a new one"
            )
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
        experiment = RunOptions(actors).placed(read_experiment(file, changes))
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


def checked_folder(folder: Path, config: str) -> JobFiles:
    """Return a user's folder; raise InputError if it is missing or too large, or lacks the experiment's file."""
    option = f"--working-dir = {str(folder)!r}"
    if not folder.is_dir():
        raise InputError(f"{option}: must be a folder that exists; check the path")
    sizes, limit = sent_sizes(folder, UNWANTED), sent_limit()
    if (size := sum(sizes.values())) >= limit:
        largest = ", ".join(f"{name} ({_mib(each)})" for name, each in sizes.most_common(NAMED_ENTRIES))
        raise InputError(
            f"{option} has {_mib(size)}: must be below Ray's limit of {_mib(limit)}; the largest entries are "
            f"{largest}; list files that the job does not need in {folder / '.rayignore'}"
        )
    if not Path(config).is_file():
        return folder, config, ()
    file = Path(config).resolve()
    if not file.is_relative_to(folder.resolve()):
        raise InputError(f"{config}: must be in {option}, the only folder that the job sees; move it there")
    return folder, str(file.relative_to(folder.resolve())), ()


@contextmanager
def staged(config: str, experiment: Experiment) -> Iterator[JobFiles]:
    """Yield a new folder with the files that the experiment needs; raise InputError if one is missing or too large."""
    with TemporaryDirectory(prefix="raysim-") as name:
        folder, file, room = Path(name), Path(config), MAX_DATA
        if file.is_file():
            shutil.copyfile(file, folder / file.name)
        for module in experiment.own_code:
            code = Path(next(iter(getattr(module, "__path__", ())), module.__file__ or ""))
            room -= _checked_size(f"{module.__name__} at", code, room, "move large files out of it")
            _copy(code, folder / code.name)
        changes = []
        for own in own_files(experiment):
            for path, place in own.places:
                room -= _checked_size(f"{own.key} =", path, room, NAMED_THERE)
                _copy(path, folder / place)
            changes.append(f"{own.key}={own.value}")
        yield folder, file.name if file.is_file() else config, tuple(changes)


def _checked_size(key: str, path: Path, room: int, remedy: str) -> int:
    """Return the bytes of a file or folder; raise InputError if they are more than a job has room for."""
    size = path.stat().st_size if path.is_file() else sum(sent_sizes(path, UNWANTED).values())
    if size > room:
        raise InputError(
            f"{key} {str(path)!r} has {_mib(size)}: must be at most {_mib(room)} to be sent with a job; {remedy}, "
            "or send it by --working-dir"
        )
    return size


def _copy(path: Path, place: Path) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    if path.is_dir():
        shutil.copytree(path, place, ignore=shutil.ignore_patterns(*UNWANTED))
    else:
        shutil.copyfile(path, place)


def _mib(size: float) -> str:
    return f"{size / 2**20:,.1f} MiB"
