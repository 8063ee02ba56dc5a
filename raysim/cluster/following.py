"""Client of a job: show its progress, react to Ctrl-C, fetch its run, and report a failure in one line."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from partitioning.cli.terminal import echo
from partitioning.common.text import word
from raysim.cluster.fetched import DamagedRunError, FetchedRun, fetched_run, relocate
from raysim.cluster.head import Head, HeadLostError
from raysim.cluster.parcel import ParcelError
from raysim.cluster.submitting import ClusterJob, JobFailedError, fetch, follow
from raysim.common.errors import InputError, StoppedError
from raysim.store.location import existing_location
from raysim.store.run_folder import has_begun
from raysim.watching.progress import display

AGAIN_SECONDS = 5
"""Time after a Ctrl-C, which leaves the job alone, in which a second one stops it."""


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
    with _interruptions_reported(head, job):
        if stop:
            head.stop_job(job.id)
        try:
            try:
                _follow(head, job)
            except KeyboardInterrupt:
                _leave(head, job)
                stop = True
                head.stop_job(job.id)
                _follow(head, job)
        except (InputError, JobFailedError) as error:
            remedy = _rescued(head, job, keep)
            if stop:
                raise StoppedError(f"stopped{remedy}") from None
            raise type(error)(f"{error}{remedy}") from None
        if job.uri is not None:
            with display() as watcher, existing_location(job.uri, watcher) as (home, _):
                relocate(home.folder, job.paths)
                return fetched_run(home.folder, job.uri)
        if not fetch(head, job, keep):
            raise RuntimeError(
                f"the run has ended, but {job.stage} is not on the cluster any more: it was fetched before"
            )
        return fetched_run(Path(job.out))


def _rescued(head: Head, job: ClusterJob, keep: bool) -> str:
    """Fetch the output of a failed run, and return words about it for the message."""
    if job.uri is not None:
        return f"; its output is at {job.uri}, and `raysim resume {word(job.uri)}` continues it"
    try:
        there = fetch(head, job, keep)
    except (ParcelError, DamagedRunError) as error:
        return f"; its folder cannot be fetched, because {error}"
    if not there:
        return ""
    remedy = f", and `raysim resume {word(job.out)}` continues it" if has_begun(Path(job.out)) else ""
    return f"; its output is in {job.out}{remedy}"


def _follow(head: Head, job: ClusterJob) -> None:
    with display() as watcher:
        follow(head, job, watcher)


def _leave(head: Head, job: ClusterJob) -> None:
    """Stop following after a Ctrl-C, unless a second one comes soon.

    Raises:
        StoppedError: no second Ctrl-C came.
    """
    try:
        # Inside the try, because the second one may come right after the message.
        echo(f"the job goes on; Ctrl-C within {AGAIN_SECONDS} s stops it", err=True)
        time.sleep(AGAIN_SECONDS)
    except KeyboardInterrupt:
        return
    raise StoppedError(f"follow and fetch it with: {follow_command(head, job)}")


def follow_command(head: Head, job: ClusterJob) -> str:
    """Return the command that follows a job and fetches its run to the same place."""
    return f"raysim follow {job.id} --address {word(head.address)} --out {word(job.out)}"


@contextmanager
def _interruptions_reported(head: Head, job: ClusterJob) -> Iterator[None]:
    """Add the remedy to errors in the context that cut the job off from here."""
    try:
        yield
    except StoppedError:
        raise
    except KeyboardInterrupt:
        raise StoppedError(f"interrupted; follow and fetch it with: {follow_command(head, job)}") from None
    except HeadLostError as error:
        raise RuntimeError(
            f"{error}: once it does, follow and fetch it with: {follow_command(head, job)}; "
            f"the run is in {job.stage} there, and lost with the "
            "cluster unless that folder is on separate storage (--stage)"
        ) from None
    except (ParcelError, DamagedRunError) as error:
        raise RuntimeError(
            f"the run's folder cannot be fetched, because {error}: copy {job.stage} from the cluster, or "
            f"follow and fetch it with: {follow_command(head, job)}"
        ) from None
