"""Client of a job: show its progress, react to Ctrl-C, bring its run back, and report a failure in one line."""

from __future__ import annotations

import re
import time

from ray.job_submission import JobStatus

from partitioning.cli.terminal import echo
from partitioning.common.text import word
from raysim.cluster.fetched import FetchedRun, fetch
from raysim.cluster.head import Head, HeadLostError
from raysim.cluster.parcel import FetchError
from raysim.cluster.submitting import ClusterJob
from raysim.common.errors import InputError, StoppedError
from raysim.fleet.ray_private import PACKAGING, untold
from raysim.store.run_folder import has_begun
from raysim.watching.progress import display
from raysim.watching.remote import replay

AGAIN_SECONDS = 5  # after a Ctrl-C, which leaves the job alone, in which a second one stops it
COLOUR = re.compile(r"\x1b\[[0-9;]*m")  # in the output of Ray's workers; other control characters are escaped
ERROR_PREFIX = "raysim: "  # of the command line's error message


def finish(head: Head, job: ClusterJob, *, stop: bool = False, keep: bool = False) -> FetchedRun:
    """Follow a job to its end, and fetch its run.

    Args:
        head: head of the cluster.
        job: job of the run.
        stop: whether to stop the job first.
        keep: whether the cluster's copy stays.

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
        run = fetch(head, job, keep)
    except StoppedError:
        raise
    except KeyboardInterrupt:
        raise StoppedError(f"interrupted; {again}") from None
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
    if not has_begun(run.folder):
        raise RuntimeError(f"{run.folder} is not as raysim writes it: the run has ended, and the folder holds none")
    return run


def follow_command(head: Head, job: ClusterJob) -> str:
    """Return the command that follows a job and fetches its run to the same place."""
    return f"raysim follow {job.id} --address {word(head.address)} --out {word(job.out)}"


def _ended(head: Head, job: ClusterJob, stop: bool) -> tuple[InputError | RuntimeError | None, bool]:
    """Show a job until it ends; return the error of a run that did not succeed, and whether the user stopped it.

    Raises:
        StoppedError: a Ctrl-C ended the following, and no second one came.
    """
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
    raise StoppedError(f"follow and fetch it with: {follow_command(head, job)}")


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
    if job.uri is not None:
        return f"; its output is at {job.uri}, and `raysim resume {word(job.uri)}` continues it"
    try:
        run = fetch(head, job, keep)
    except FetchError as error:
        return f"; its folder cannot be fetched, because {error}"
    if run is None:
        return ""
    remedy = f", and `raysim resume {word(job.out)}` continues it" if has_begun(run.folder) else ""
    return f"; its output is in {job.out}{remedy}"
