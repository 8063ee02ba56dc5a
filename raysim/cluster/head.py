"""The head of a Ray cluster, seen through its job server: whether it is there, and what its jobs say."""

from __future__ import annotations

import asyncio
import importlib.util
import logging
import os
import platform
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import ray
from ray.exceptions import AuthenticationError
from ray.job_submission import JobDetails, JobSubmissionClient

import algorithms
import partitioning
import raysim
from raysim.common.errors import InputError

CONNECT_SECONDS = 8
"""How long the head may take to accept a connection."""

ANSWER_SECONDS = 12
"""How long it may take to say what it is."""

WORK_SECONDS = 300
"""How long it may take for any other answer, such as after an upload."""

SILENT_SECONDS = 20
"""How long a job may say nothing until it is asked whether it still runs."""

LOST_SECONDS = 30
"""How long the head may be away in the middle of a job."""

PORT = 8265
"""Where the dashboard of a cluster listens, if nothing else was said."""

UNWANTED = ["__pycache__", "*.pyc"]
"""What is not sent of a folder."""

SETTING = "RAY_API_SERVER_ADDRESS"
"""A variable of the environment that Ray's client takes before the address that it is given."""


TALKATIVE = (
    "ray.dashboard.modules.dashboard_sdk",
    "ray.dashboard.modules.job.sdk",
    "ray._private.runtime_env.packaging",
)
"""Loggers of Ray's client that tell each step on the standard error stream."""


class HeadLostError(RuntimeError):
    """The head of the cluster does not answer any more."""


class _Client(JobSubmissionClient):
    """Ray's own, which does not wait for ever."""

    def _do_request(self, method: str, endpoint: str, **given: Any) -> Any:
        asked = endpoint in ("/api/version", METADATA)
        return super()._do_request(
            method, endpoint, timeout=(CONNECT_SECONDS, ANSWER_SECONDS if asked else WORK_SECONDS), **given
        )

    def about(self) -> dict[str, str]:
        """What the cluster says of itself."""
        answer = self._do_request("GET", METADATA)
        answer.raise_for_status()
        return dict(answer.json()["data"])


METADATA = "/api/v0/cluster_metadata"


class Head:
    """A cluster's head that has answered, and has what is here.

    Args:
        address: URL of its dashboard.

    Raises:
        InputError: nothing answers there in time, what answers is no dashboard of Ray, it wants another token, or has
            another Ray or Python.
    """

    def __init__(self, address: str) -> None:
        self.address = checked_address(address)
        self._client = _connected(self.address)
        self._read: Counter[str] = Counter()
        """Characters of each job's log that have been asked for already."""

    def submit(self, command: str, job: str, environment: Mapping[str, Any], metadata: Mapping[str, str]) -> None:
        """Send a job, and what its environment names of this machine's folders.

        Args:
            command: what the head's shell runs.
            job: its id, which is new.
            environment: of Ray, `working_dir` and `env_vars`; our own three packages go with it.
            metadata: is kept with the job.
        """
        whole = {"py_modules": [str(Path(each.__file__ or "").parent) for each in OURS], "excludes": UNWANTED}
        self._client.submit_job(
            entrypoint=command,
            submission_id=job,
            runtime_env={**whole, **environment},
            metadata=dict(metadata),
        )

    def details(self, job: str) -> JobDetails:
        """What the head knows of a job.

        Raises:
            InputError: there is no such job.
        """
        try:
            return self._client.get_job_info(job)
        except RuntimeError as error:
            if "404" not in str(error):
                raise
            raise InputError(
                f"job {job!r}: must be one of the cluster at {self.address}; see the list in its dashboard"
            ) from None

    def stop(self, job: str) -> None:
        """Ask a job to stop."""
        self._client.stop_job(job)

    def lines(self, job: str) -> Iterator[str]:
        """The lines that a job writes, as it writes them, until it has ended; but those that were given before.

        Raises:
            HeadLostError: the head has not answered for half a minute.
        """
        rest = ""
        for text in self._log(job):
            *whole, rest = (rest + text).split("\n")
            yield from whole
        if rest:
            yield rest

    def _log(self, job: str) -> Iterator[str]:
        """A job's log in pieces. Where the connection breaks it begins anew, and what is known already is left out."""
        lost_at = time.monotonic() + LOST_SECONDS
        while True:
            place = 0
            try:
                for text in self._tail(job):
                    place += len(text)
                    if place > (seen := self._read[job]):
                        self._read[job] = place
                        yield text[len(text) - (place - seen) :]
                    lost_at = time.monotonic() + LOST_SECONDS
                if self.details(job).status.is_terminal():
                    return
            except InputError:
                raise
            except (OSError, RuntimeError) as error:
                if time.monotonic() > lost_at:
                    raise HeadLostError(f"the head at {self.address} does not answer any more") from error
            time.sleep(1)

    def _tail(self, job: str) -> Iterator[str]:
        """A job's log in pieces, by one connection; OSError or RuntimeError where it breaks."""
        from aiohttp import ClientError

        pieces = self._client.tail_job_logs(job)

        async def next_piece() -> str | None:
            try:
                return await anext(pieces, None)
            except ClientError as error:  # most of them are no OSError
                raise RuntimeError(str(error)) from error

        with asyncio.Runner() as runner:
            while True:
                piece = runner.get_loop().create_task(next_piece())
                while not piece.done():
                    runner.run(_until(piece))
                    if not piece.done():
                        self.details(job)  # or the head has gone without a word
                if (text := piece.result()) is None:
                    return
                yield text


OURS = (algorithms, partitioning, raysim)


async def _until(piece: asyncio.Task[Any]) -> None:
    await asyncio.wait({piece}, timeout=SILENT_SECONDS)


def checked_address(address: str) -> str:
    """The URL without what does not belong to it.

    Raises:
        InputError: it is none.
    """
    form = f"--address = {address!r}: must be the URL of the dashboard of a Ray cluster, such as http://HOST:{PORT}"
    if "://" not in address:
        raise InputError(
            f"{form}; `raysim run --address HOST:PORT` takes the other address, from a machine of the cluster"
        )
    try:
        parts = urlsplit(address)
        known = parts.scheme in ("http", "https") and parts.hostname and (parts.port is None or parts.port > 0)
    except ValueError:
        known = False
    if not known:
        raise InputError(f"{form}; correct it")
    return address.rstrip("/")


def _connected(address: str) -> _Client:
    """Ray's client for a cluster that is as it must be; see `Head`."""
    if importlib.util.find_spec("aiohttp") is None:
        raise InputError("raysim submit: must have Ray's job client; pip install 'raysim[cluster]'")
    import requests

    for name in TALKATIVE:
        logging.getLogger(name).setLevel(logging.ERROR)
    wrong = f"--address = {address!r}: must be the URL of the dashboard of a Ray cluster, and"
    before = os.environ.get(SETTING)
    os.environ[SETTING] = address
    try:
        client = _Client(address)
        about = client.about()
    except AuthenticationError as error:
        said = "none was sent" if "required" in str(error) else "the one that was sent is another"
        raise InputError(
            f"--address = {address!r}: the cluster wants its token, and {said}; set RAY_AUTH_MODE=token, and "
            "RAY_AUTH_TOKEN_PATH to a file that has it"
        ) from None
    except (requests.exceptions.Timeout, ConnectionError) as error:
        late = requests.exceptions.Timeout
        if isinstance(error, late) or isinstance(error.__context__, late):
            what = f"nothing answered within {CONNECT_SECONDS + ANSWER_SECONDS} s; check it, and that this machine may"
            raise InputError(f"{wrong} {what} connect to it") from None
        raise InputError(f"{wrong} nothing listens there; check it, and that the cluster runs") from None
    except (requests.exceptions.RequestException, RuntimeError, LookupError, TypeError, ValueError):
        raise InputError(f"{wrong} what answers there is none; check the port, which is {PORT} in most") from None
    finally:
        os.environ.pop(SETTING)
        if before is not None:
            os.environ[SETTING] = before
    _check_versions(address, about)
    return client


def _check_versions(address: str, about: Mapping[str, str]) -> None:
    """Refuse a cluster on which our packages would run with another Ray or Python."""
    there = about.get("rayVersion"), _minor(about.get("pythonVersion", ""))
    here = ray.__version__, _minor(platform.python_version())
    if there != here:
        raise InputError(
            f"--address = {address!r}: the cluster has Ray {there[0]} and Python {there[1]}, and here are {here[0]} "
            f"and {here[1]}: must be the same; install ray=={there[0]} on Python {there[1]} here, or change the image"
        )


def _minor(version: str) -> str:
    return ".".join(version.split(".")[:2])
