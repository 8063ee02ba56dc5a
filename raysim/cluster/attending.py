"""What a person sees of a job until its run is here: progress, what a Ctrl-C does, and one line where it went wrong."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from raysim.cluster.head import Head, HeadLostError
from raysim.cluster.parcel import ParcelError
from raysim.cluster.submitting import Job, JobFailedError, fetch, follow, relocate
from raysim.common.errors import InputError, StoppedError
from raysim.simulation.api import Run, ended
from raysim.store.location import RunLocation, existing_location
from raysim.store.run_folder import has_begun
from raysim.watching.progress import display

AGAIN_SECONDS = 5
"""How long after a Ctrl-C, which leaves the job alone, another one stops it."""


def attend(head: Head, job: Job, *, stop: bool = False, keep: bool = False) -> Run:
    """Follow a job, and fetch its run.

    Args:
        head: of the cluster.
        job: the run's.
        stop: ask it to stop first.
        keep: whether the cluster's copy stays.

    Raises:
        InputError: the cluster refused the experiment.
        StoppedError: it was stopped from here, or goes on there with nobody following it.
        RuntimeError: the run failed, was stopped by somebody else, or could not be fetched; says what there is.
    """
    with _told(head, job):
        if stop:
            head.stop(job.id)
        try:
            try:
                _follow(head, job)
            except KeyboardInterrupt:
                _leave(head, job)
                stop = True
                head.stop(job.id)
                _follow(head, job)
        except (InputError, JobFailedError) as error:
            remedy = _rescued(head, job, keep)
            if stop:
                raise StoppedError(f"stopped{remedy}") from None
            raise type(error)(f"{error}{remedy}") from None
        if job.uri is not None:
            with display() as watcher, existing_location(job.uri, watcher) as (home, _):
                relocate(home.folder, job)
                return ended(home)
        if not fetch(head, job, keep):
            raise RuntimeError(
                f"the run has ended, and {job.stage} is not on the cluster any more: it was fetched before"
            )
        return ended(RunLocation(Path(job.out), str(job.out)))


def _rescued(head: Head, job: Job, keep: bool) -> str:
    """Fetch what a run has written that did not end well, and say what there is."""
    if job.uri is not None:
        return f"; what it wrote is at {job.uri}, and `raysim resume {job.uri}` goes on from there"
    try:
        there = fetch(head, job, keep)
    except ParcelError as error:
        return f"; its folder cannot be fetched, for {error}"
    if not there:
        return ""
    goes_on = f", and `raysim resume {job.out}` goes on from there" if has_begun(Path(job.out)) else ""
    return f"; what it wrote is in {job.out}{goes_on}"


def _follow(head: Head, job: Job) -> None:
    with display() as watcher:
        follow(head, job, watcher)


def _leave(head: Head, job: Job) -> None:
    """After a Ctrl-C: stop following, unless another one comes soon.

    Raises:
        StoppedError: none came.
    """
    try:
        # Inside, for the other one may come as soon as this is read.
        click.echo(f"the job goes on; Ctrl-C within {AGAIN_SECONDS} s stops it", err=True)
        time.sleep(AGAIN_SECONDS)
    except KeyboardInterrupt:
        return
    raise StoppedError(_again(head, job))


def _again(head: Head, job: Job) -> str:
    return f"follow and fetch it with: raysim follow {job.id} --address {head.address}"


@contextmanager
def _told(head: Head, job: Job) -> Iterator[None]:
    """Within, what cuts the run off from here is told with what to do about it."""
    try:
        yield
    except StoppedError:
        raise
    except KeyboardInterrupt:
        raise StoppedError(f"interrupted; {_again(head, job)}") from None
    except HeadLostError as error:
        raise RuntimeError(
            f"{error}: once it does, {_again(head, job)}; the run is in {job.stage} there, and lost with the cluster "
            "unless that is storage of its own (--stage)"
        ) from None
    except ParcelError as error:
        raise RuntimeError(
            f"the run's folder cannot be fetched, for {error}: copy {job.stage} from the cluster, or "
            f"{_again(head, job)}"
        ) from None
