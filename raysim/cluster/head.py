"""Head of a Ray cluster, seen through its job server: its versions, its jobs and their logs."""

from __future__ import annotations

import asyncio
import importlib.util
import logging
import os
import platform
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any
from urllib.parse import urlsplit

import ray
from ray.exceptions import AuthenticationError
from ray.job_submission import JobDetails, JobSubmissionClient

import algorithms
import partitioning
import raysim
from raysim.common.distribution import install
from raysim.common.errors import InputError

CONNECT_SECONDS = 8
"""Time that the head may take to accept a connection."""

ANSWER_SECONDS = 12
"""Time that the head may take to report its versions."""

WORK_SECONDS = 300
"""Time that the head may take for any other answer, for example after an upload."""

SILENT_SECONDS = 20
"""Silence of a job after which its state is asked for."""

LOST_SECONDS = 30
"""Time that the head may be away in the middle of a job."""

UPLOAD_SECONDS = 3600
"""Time that the head may take to accept a folder, from a slow line too."""

MAX_ANSWER = 2**22
"""Most bytes of an answer: the log of a job comes over another connection."""

MAX_LINE = 2**17
"""Most characters of a line of a job, of which a parcel's has half; the rest of a longer line is left out."""

PORT = 8265
"""Default port of a cluster's dashboard."""

UNWANTED = ["__pycache__", "*.pyc"]
"""Files of a folder that are not sent."""

ADDRESS_VARIABLE = "RAY_API_SERVER_ADDRESS"
"""Environment variable that Ray's client prefers to the address in its argument."""

METADATA = "/api/v0/cluster_metadata"

PACKAGES = (algorithms, partitioning, raysim)

NOISY_LOGGERS = (
    "ray.dashboard.modules.dashboard_sdk",
    "ray.dashboard.modules.job.sdk",
    "ray._private.runtime_env.packaging",
)
"""Loggers of Ray's client that report each step."""


class HeadLostError(RuntimeError):
    """Head of the cluster that does not answer any more."""


class Head(JobSubmissionClient):
    """Head of a cluster that has answered and has this machine's versions: Ray's job client, with time limits.

    Args:
        address: URL of its dashboard.

    Raises:
        InputError: nothing answers in time, the answer is not from Ray's dashboard, the token is wrong, or Ray or
            Python has another version.
    """

    def __init__(self, address: str) -> None:
        self.address = checked_address(address)
        self._read: Counter[str] = Counter()
        """Characters of each job's log that `lines` has yielded."""
        with _connecting(self.address):
            super().__init__(self.address)
            answer = self._do_request("GET", METADATA)
            answer.raise_for_status()
            about = {str(name): str(value) for name, value in dict(answer.json()["data"]).items()}
        _check_versions(self.address, about)

    def _do_request(self, method: str, endpoint: str, **given: Any) -> Any:
        """Return an answer that came whole, in time, and from the head itself.

        Ray's client waits for ever if an answer comes byte by byte, takes any amount, and follows redirects.
        """
        from requests.exceptions import Timeout

        seconds = ANSWER_SECONDS if endpoint in ("/api/version", METADATA) else WORK_SECONDS
        bounds: dict[str, Any] = {
            "timeout": (CONNECT_SECONDS, seconds),
            "allow_redirects": False,
            "stream": True,
            "hooks": {"response": _read_bounded},
        }
        self._headers["Accept-Encoding"] = "identity"
        answers: SimpleQueue[Any] = SimpleQueue()

        def ask() -> None:
            try:
                answers.put(request(method, endpoint, **bounds, **given))
            except BaseException as error:
                answers.put(error)

        request = super()._do_request
        Thread(target=ask, name=f"{method} {endpoint}", daemon=True).start()
        try:
            answer = answers.get(timeout=UPLOAD_SECONDS if method == "PUT" else CONNECT_SECONDS + seconds)
        except Empty:
            raise Timeout(f"the head at {self.address} has not answered within {CONNECT_SECONDS + seconds} s") from None
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def submit(self, command: str, job: str, environment: Mapping[str, Any], metadata: Mapping[str, str]) -> None:
        """Send a job, with our own three packages and the folders in its environment.

        Args:
            command: shell command that the head runs.
            job: id of the new job.
            environment: Ray's runtime environment: `working_dir` and `env_vars`.
            metadata: stored with the job.
        """
        own = {"py_modules": [str(Path(each.__file__ or "").parent) for each in PACKAGES], "excludes": UNWANTED}
        with self._understood():
            self.submit_job(
                entrypoint=command,
                submission_id=job,
                runtime_env={**own, **environment},
                metadata=dict(metadata),
            )

    def stop_job(self, job_id: str) -> bool:
        """Stop a job, and return whether it was running."""
        with self._understood():
            return bool(super().stop_job(job_id))

    def details(self, job: str) -> JobDetails:
        """Return the head's record of a job.

        Raises:
            InputError: there is no such job.
        """
        try:
            with self._understood():
                return self.get_job_info(job)
        except RuntimeError as error:
            if "404" not in str(error):
                raise
            raise InputError(
                f"job {job!r}: must be a job of the cluster at {self.address}; see the list in its dashboard"
            ) from None

    @contextmanager
    def _understood(self) -> Iterator[None]:
        """Turn errors about an answer of another form in the context into a RuntimeError."""
        try:
            yield
        except (ValueError, TypeError, LookupError, RecursionError) as error:
            raise RuntimeError(
                f"the head at {self.address} answers otherwise than Ray's job server ({type(error).__name__}: {error})"
            ) from None

    def lines(self, job: str) -> Iterator[str]:
        """Yield the lines that a job writes until it ends; leave out lines that were yielded before.

        A line has at most `MAX_LINE` characters; its end is left out.

        Raises:
            HeadLostError: the head has not answered for half a minute.
        """
        rest = ""
        for text in self._log(job):
            *whole, rest = (rest + text).split("\n")
            yield from (line[:MAX_LINE] for line in whole)
            rest = rest[:MAX_LINE]
        if rest:
            yield rest

    def _log(self, job: str) -> Iterator[str]:
        """Yield a job's log in pieces. After a broken connection the log starts anew; skip the part that is known."""
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
        """Yield a job's log in pieces over one connection; raise OSError or RuntimeError if it breaks."""
        from aiohttp import ClientError

        pieces = self.tail_job_logs(job)

        async def next_piece() -> str | None:
            try:
                return await anext(pieces, None)
            except ClientError as error:  # few of them are an OSError
                raise RuntimeError(str(error)) from error

        with asyncio.Runner() as runner:
            while True:
                piece = runner.get_loop().create_task(next_piece())
                while not piece.done():
                    runner.run(_until(piece))
                    if not piece.done():
                        self.details(job)  # raises if the head has gone without closing the connection
                if (text := piece.result()) is None:
                    return
                yield text


def _read_bounded(answer: Any, *_: Any, **__: Any) -> None:
    """Read an answer's body, which must not be larger than `MAX_ANSWER`, in the place of `requests`."""
    body = answer.raw.read(MAX_ANSWER + 1, decode_content=False)
    answer.close()
    if len(body) > MAX_ANSWER:
        raise RuntimeError(f"an answer has more than {MAX_ANSWER:,} bytes")
    answer._content, answer._content_consumed = body, True


async def _until(piece: asyncio.Task[Any]) -> None:
    await asyncio.wait({piece}, timeout=SILENT_SECONDS)


def checked_address(address: str) -> str:
    """Return the URL without slashes at its end.

    Raises:
        InputError: it is not a URL.
    """
    form = f"--address = {address!r}: must be the URL of the dashboard of a Ray cluster, such as http://HOST:{PORT}"
    if "://" not in address:
        raise InputError(f"{form}; for HOST:PORT, use `raysim run --address HOST:PORT` on a machine of the cluster")
    try:
        parts = urlsplit(address)
        known = parts.scheme in ("http", "https") and parts.hostname and (parts.port is None or parts.port > 0)
    except ValueError:
        known = False
    if not known:
        raise InputError(f"{form}; correct it")
    return address.rstrip("/")


@contextmanager
def _connecting(address: str) -> Iterator[None]:
    """Make Ray's client use this address in the context, and turn its errors into an InputError."""
    if importlib.util.find_spec("aiohttp") is None:
        raise InputError(f"raysim submit: must have Ray's job client, and it is missing; {install('cluster')}")
    import requests

    for name in NOISY_LOGGERS:
        logging.getLogger(name).setLevel(logging.ERROR)
    wrong = f"--address = {address!r}: must be the URL of the dashboard of a Ray cluster, and"
    before = os.environ.get(ADDRESS_VARIABLE)
    os.environ[ADDRESS_VARIABLE] = address
    try:
        yield
    except AuthenticationError as error:
        sent = "no token was sent" if "required" in str(error) else "another token was sent"
        raise InputError(
            f"--address = {address!r}: the cluster wants its token, and {sent}; set RAY_AUTH_MODE=token, and "
            "RAY_AUTH_TOKEN_PATH to a file with the token"
        ) from None
    except (requests.exceptions.Timeout, ConnectionError) as error:
        late = requests.exceptions.Timeout
        if isinstance(error, late) or isinstance(error.__context__, late):
            seconds = CONNECT_SECONDS + ANSWER_SECONDS
            what = f"nothing answered within {seconds} s; check the URL and the firewall"
            raise InputError(f"{wrong} {what}") from None
        raise InputError(f"{wrong} nothing listens there; check the URL, and that the cluster runs") from None
    except (requests.exceptions.RequestException, RuntimeError, LookupError, TypeError, ValueError):
        raise InputError(f"{wrong} something else answers there; check the port, usually {PORT}") from None
    finally:
        os.environ.pop(ADDRESS_VARIABLE)
        if before is not None:
            os.environ[ADDRESS_VARIABLE] = before


def _check_versions(address: str, about: Mapping[str, str]) -> None:
    """Refuse a cluster with another Ray or Python."""
    there = about.get("rayVersion"), _minor(about.get("pythonVersion", ""))
    here = ray.__version__, _minor(platform.python_version())
    if there != here:
        raise InputError(
            f"--address = {address!r}: the cluster has Ray {there[0]} and Python {there[1]}, this machine {here[0]} "
            f"and {here[1]}: must be the same; install ray=={there[0]} on Python {there[1]} here, or change the image"
        )


def _minor(version: str) -> str:
    return ".".join(version.split(".")[:2])
