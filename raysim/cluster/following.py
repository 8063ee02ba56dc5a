"""Client of a job: show its progress, react to Ctrl-C, bring its run back, and report a failure in one line.

Nothing in a fetched folder is trusted. Its experiment may name any code, so it is read as plain TOML and JSON.
"""

import json
import re
import secrets
import shlex
import time
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ray.job_submission import JobStatus

from partitioning.cli.terminal import echo
from partitioning.common.paths import open_regular
from partitioning.common.text import word
from partitioning.store.remote import RemoteFolder
from raysim.cluster.head import Head, HeadLostError
from raysim.cluster.parcel import FetchError, received
from raysim.cluster.submitting import ClusterJob, new_place
from raysim.common.errors import InputError, StoppedError
from raysim.common.names import CONFIG, SUMMARY
from raysim.config.read import algorithm_names
from raysim.fleet.ray_private import PACKAGING, untold
from raysim.store.config_file import restore_paths
from raysim.store.location import fetched_location
from raysim.store.result import ShownResult
from raysim.store.run_folder import has_begun
from raysim.watching.progress import display
from raysim.watching.remote import replay

AGAIN_SECONDS = 5  # after a Ctrl-C, which leaves the job alone, in which a second one stops it
COLOUR = re.compile(r"\x1b\[[0-9;]*m")  # in the output of Ray's workers; other control characters are escaped
ERROR_PREFIX = "raysim: "  # of the command line's error message
LARGEST = 2**22  # bytes of a fetched file that is read here


@dataclass(frozen=True)
class FetchedRun:
    """Run that a cluster made: its folder here, the results of its ended algorithms, and its URI if it has one."""

    folder: Path
    results: tuple[ShownResult, ...]
    uri: str | None = None


def finish(head: Head, job: ClusterJob, *, stop: bool = False, keep: bool = False) -> FetchedRun:
    """Follow a job to its end, after stopping it if asked to, and fetch its run; `keep` leaves the cluster's copy.

    Raises:
        InputError: the cluster refused the experiment.
        StoppedError: the user stopped the job, or stopped following it.
        RuntimeError: the run failed, was stopped by somebody else, or could not be fetched.
    """
    again = f"follow and fetch it with: {follow_command(head, job)}"
    try:
        failure, stop = _ended(head, job, stop)
        if failure is not None:
            remedy = _rescued(head, job, keep)
            raise StoppedError(f"stopped{remedy}") if stop else type(failure)(f"{failure}{remedy}")
        run = _fetch(head, job, keep)
        if run is not None and not has_begun(run.folder):
            raise FetchError(f"{run.folder} holds no run")
    except StoppedError as stopped:
        raise StoppedError(*(stopped.args or [again])) from None
    except KeyboardInterrupt:
        raise StoppedError("interrupted", again) from None
    except HeadLostError as error:
        raise RuntimeError(
            f"{error}: once it does, {again}; the run is in {job.stage} there, and lost with the cluster unless that "
            "folder is on separate storage (--stage)"
        ) from None
    except FetchError as error:
        raise RuntimeError(
            f"the run's folder cannot be fetched, because {error}: copy {job.stage} from the cluster, or {again}"
        ) from None
    if run is None:
        raise RuntimeError(f"the run has ended, but {job.stage} is not on the cluster any more: it was fetched before")
    return run


def follow_command(head: Head, job: ClusterJob) -> str:
    """Return the command that follows a job and fetches its run to the same place."""
    return f"raysim follow {job.id} --address {word(head.address)} --out {word(job.out)}"


def _ended(head: Head, job: ClusterJob, stop: bool) -> tuple[InputError | RuntimeError | None, bool]:
    """Show a job until it ends; return the error of a run that did not succeed, and whether the user stopped it."""
    if stop:
        head.stop_job(job.id)
    try:
        return _watch(head, job), stop
    except KeyboardInterrupt:
        try:
            # Inside the try, because the second one may come right after the message.
            echo(f"the job goes on; Ctrl-C within {AGAIN_SECONDS} s stops it", err=True)
            time.sleep(AGAIN_SECONDS)
        except KeyboardInterrupt:
            head.stop_job(job.id)
            return _watch(head, job), True
        raise StoppedError from None


def _watch(head: Head, job: ClusterJob) -> InputError | RuntimeError | None:
    """Show the progress of a job until it ends; return the error of a run that did not succeed."""
    message, last = "", ""

    def here(text: str) -> str:
        return text.replace(job.stage, str(job.out))

    with display() as watcher:
        if lacking := untold(PACKAGING):
            watcher.notice(lacking)
        for coloured in head.lines(job.id):
            line = COLOUR.sub("", coloured)
            if line.startswith(ERROR_PREFIX):
                message = here(line.removeprefix(ERROR_PREFIX))
            elif not replay(line, watcher, here):
                watcher.line(here(line))
                last = line.strip() or last
    details = head.details(job.id)
    status, code = details.status, details.driver_exit_code
    if status is JobStatus.SUCCEEDED:
        return None
    if code == 2 and message:
        return InputError(message)
    if status is JobStatus.STOPPED:
        return RuntimeError(f"job {job.id} was stopped")
    how = details.error_type if code is None else f"exit status {code}"
    return RuntimeError(message or f"job {job.id} failed ({how}): {last}")


def _rescued(head: Head, job: ClusterJob, keep: bool) -> str:
    """Fetch the output of a failed run, and return words about it for the message."""
    remedy = f"`raysim resume {word(job.out)}` continues it"
    if job.uri is not None:
        return f"; its output is at {job.uri}, and {remedy}"
    try:
        run = _fetch(head, job, keep)
    except FetchError as error:
        return f"; its folder cannot be fetched, because {error}"
    if run is None:
        return ""
    return f"; its output is in {job.out}" + (f", and {remedy}" if has_begun(run.folder) else "")


def _fetch(head: Head, job: ClusterJob, keep: bool) -> FetchedRun | None:
    """Bring an ended run back, from its URI or through the log of a job; return None if the cluster has no folder."""
    if job.uri is not None:
        with display() as watcher, fetched_location(RemoteFolder.of(job.uri), watcher) as home:
            return FetchedRun(home.folder, _adopted(home.folder, job.paths), job.uri)
    out, sender = Path(new_place(job.out)), f"{job.id}-parcel-{secrets.token_hex(3)}"
    head.submit(shlex.join(["python", "-m", "raysim.cluster.parcel", job.stage]), sender)
    with received(head.lines(sender), out) as draft:
        run = None if draft is None else FetchedRun(out, _adopted(draft, job.paths))
    if not keep:
        try:
            head.submit(shlex.join(["rm", "-rf", "--", str(Path(job.stage).parent)]), f"{sender}-end")
        except (OSError, RuntimeError, InputError) as error:  # the run is here all the same
            echo(f"a copy of the run stays in {job.stage} on the cluster ({error})", err=True)
    return run


def _adopted(folder: Path, paths: Mapping[str, Any]) -> tuple[ShownResult, ...]:
    """Check a run's folder, restore this machine's paths for a resume here, and return its results.

    A run that failed may have written nothing. FetchError names a file that is not one that raysim writes.
    """
    path, results = folder / CONFIG, []
    if not path.is_file():
        return ()
    with _readable(path) as text:
        config = tomllib.loads(text)
        restore_paths(path, config, paths)
        names = algorithm_names(config["algorithm"])
    for name in names:
        if Path(name).name == name and (path := folder / name / SUMMARY).is_file():
            with _readable(path) as text:
                results.append(ShownResult.of(name, json.loads(text)))
    return tuple(results)


@contextmanager
def _readable(path: Path) -> Iterator[str]:
    """Yield the text of an unknown file, and turn errors of reading it in the context into a FetchError."""
    try:
        with open_regular(path) as file:
            data = file.read(LARGEST + 1)
        if len(data) > LARGEST:
            raise ValueError(f"it has more than {LARGEST:,} bytes")
        yield data.decode()
    except (OSError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError) as error:
        raise FetchError(f"{path} is not as raysim writes it ({type(error).__name__}: {error})") from None
