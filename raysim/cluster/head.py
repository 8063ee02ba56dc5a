"""Head of a Ray cluster, seen through its job server: its versions, its jobs and their logs."""

import asyncio
import importlib.util
import logging
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from math import inf
from pathlib import Path
from threading import Thread
from typing import Any

import ray
from ray.exceptions import AuthenticationError
from ray.job_submission import JobDetails, JobSubmissionClient

import algorithms
import partitioning
import raysim
from raysim.common.distribution import install
from raysim.common.errors import InputError
from raysim.fleet.address import DASHBOARD_PORT, checked_url
from raysim.fleet.ray_runtime import environment

CONNECT_SECONDS = 20  # to accept a connection, and to report the versions
WORK_SECONDS = 300  # to give any other answer, for example after an upload
UPLOAD_SECONDS = 3600  # to accept a folder, from a slow line too
SILENT_SECONDS = 20  # silence of a job after which its state is asked for
LOST_SECONDS = 30  # absence of the head in the middle of a job

MAX_ANSWER = 2**22  # bytes of an answer: the log of a job comes over another connection
MAX_LINE = 2**17  # characters of a line of a job, of which a parcel's has half; the rest of a longer line is left out

UNWANTED = ["__pycache__", "*.pyc"]  # files of a folder that are not sent
ADDRESS_VARIABLE = "RAY_API_SERVER_ADDRESS"  # Ray's client prefers it to the address in its argument
METADATA = "/api/v0/cluster_metadata"


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
        self.address = checked_url(address)
        self._read: Counter[str] = Counter()
        """Lines of each job's log that `lines` has yielded."""
        with _connecting(self.address):
            super().__init__(self.address)
            answer = self._do_request("GET", METADATA)
            answer.raise_for_status()
            about = dict(answer.json()["data"])
            there = str(about.get("rayVersion")), ".".join(str(about.get("pythonVersion")).split(".")[:2])
        here = ray.__version__, f"{sys.version_info.major}.{sys.version_info.minor}"
        if there != here:
            raise InputError(
                f"--address = {self.address!r}: the cluster has Ray {there[0]} and Python {there[1]}, this machine "
                f"{here[0]} and {here[1]}: must be the same; install ray=={there[0]} on Python {there[1]} here, or "
                "change the image"
            )

    def _do_request(self, method: str, endpoint: str, **given: Any) -> Any:
        """Return an answer of the head itself, within limits of size and time, which Ray's client does not have."""
        seconds = CONNECT_SECONDS if endpoint in ("/api/version", METADATA) else WORK_SECONDS
        # Its own limits of time are a second later than ours, and end the thread.
        given |= {"timeout": (CONNECT_SECONDS + 1, seconds + 1), "allow_redirects": False, "stream": True}
        self._headers["Accept-Encoding"] = "identity"
        request, answer = super()._do_request, Future[Any]()

        def ask() -> None:
            try:
                answer.set_result(request(method, endpoint, hooks={"response": _read_bounded}, **given))
            except BaseException as error:
                answer.set_exception(error)

        Thread(target=ask, name=f"{method} {endpoint}", daemon=True).start()
        try:
            return answer.result(seconds := UPLOAD_SECONDS if method == "PUT" else seconds)
        except TimeoutError:
            raise TimeoutError(f"the head at {self.address} has not answered within {seconds} s") from None

    def submit(self, command: str, job: str, metadata: dict[str, str] | None = None, **environment: Any) -> None:
        """Send a shell command as a job, with our own three packages and the rest of its runtime environment."""
        packages = [str(Path(each.__file__ or "").parent) for each in (algorithms, partitioning, raysim)]
        whole = {"py_modules": packages, "excludes": UNWANTED, **environment}
        with self._understood(job):
            self.submit_job(entrypoint=command, submission_id=job, runtime_env=whole, metadata=metadata)

    def stop_job(self, job_id: str) -> bool:
        """Stop a job, and return whether it was running."""
        with self._understood(job_id):
            return bool(super().stop_job(job_id))

    def details(self, job: str) -> JobDetails:
        """Return the head's record of a job; raise InputError if there is no such job."""
        with self._understood(job):
            return self.get_job_info(job)

    @contextmanager
    def _understood(self, job: str) -> Iterator[None]:
        """Turn errors about an unknown job, or an answer of another form, in the context into one line."""
        try:
            yield
        except (ValueError, TypeError, LookupError, RecursionError) as error:
            raise RuntimeError(
                f"the head at {self.address} answers otherwise than Ray's job server ({type(error).__name__}: {error})"
            ) from None
        except RuntimeError as error:
            if "status code 404" not in str(error):
                raise
            raise InputError(
                f"job {job!r}: must be a job of the cluster at {self.address}; see the list in its dashboard"
            ) from None

    def lines(self, job: str) -> Iterator[str]:
        """Yield the lines that a job writes until it ends, cut to `MAX_LINE`, without those of earlier calls.

        Raises:
            HeadLostError: the head has not answered for half a minute.
        """
        from aiohttp import ClientError

        lost_at = inf
        while True:
            count, rest = 0, ""  # Each connection sends the log from its beginning.
            try:
                for piece in self._tail(job):
                    *whole, rest = (rest + piece).split("\n")
                    for line in whole:
                        count += 1
                        if count > self._read[job]:
                            self._read[job] = count
                            yield line[:MAX_LINE]
                    rest, lost_at = rest[:MAX_LINE], inf
                if self.details(job).status.is_terminal():
                    yield from [rest] if rest else []
                    return
                lost_at = inf
            except (OSError, RuntimeError, ClientError) as error:
                # A job may have been silent for hours, so the time counts from the first failure.
                lost_at = min(lost_at, time.monotonic() + LOST_SECONDS)
                if time.monotonic() >= lost_at:
                    raise HeadLostError(f"the head at {self.address} does not answer any more") from error
            time.sleep(1)

    def _tail(self, job: str) -> Iterator[str]:
        """Yield a job's log in pieces over one connection, until it ends or breaks."""
        pieces = self.tail_job_logs(job)

        async def next_piece() -> str | None:
            piece = asyncio.ensure_future(anext(pieces, None))
            while not (await asyncio.wait({piece}, timeout=SILENT_SECONDS))[0]:
                self.details(job)  # raises if the head has gone without closing the connection
            return piece.result()

        with asyncio.Runner() as runner:
            while (piece := runner.run(next_piece())) is not None:
                yield piece


def _read_bounded(answer: Any, *_: Any, **__: Any) -> None:
    """Read an answer's body, which must not be larger than `MAX_ANSWER`, in the place of `requests`."""
    body = answer.raw.read(MAX_ANSWER + 1, decode_content=False)
    answer.close()
    if len(body) > MAX_ANSWER:
        raise RuntimeError(f"an answer has more than {MAX_ANSWER:,} bytes")
    answer._content, answer._content_consumed = body, True


@contextmanager
def _connecting(address: str) -> Iterator[None]:
    """Make Ray's client use this address in the context, and turn its errors into an InputError."""
    if importlib.util.find_spec("aiohttp") is None:
        raise InputError(f"raysim submit: must have Ray's job client, and it is missing; {install('cluster')}")
    # Ray's client reports each step.
    for name in ("dashboard.modules.dashboard_sdk", "dashboard.modules.job.sdk", "_private.runtime_env.packaging"):
        logging.getLogger(f"ray.{name}").setLevel(logging.ERROR)
    wrong = f"--address = {address!r}: must be the URL of the dashboard of a Ray cluster, and"
    try:
        with environment({ADDRESS_VARIABLE: address}):
            yield
    except AuthenticationError as error:
        sent = "no token was sent" if "required" in str(error) else "another token was sent"
        raise InputError(
            f"--address = {address!r}: the cluster wants its token, and {sent}; set RAY_AUTH_MODE=token, and "
            "RAY_AUTH_TOKEN_PATH to a file with the token"
        ) from None
    except TimeoutError:
        raise InputError(
            f"{wrong} nothing answered within {CONNECT_SECONDS} s; check the URL and the firewall"
        ) from None
    except ConnectionError:
        raise InputError(f"{wrong} nothing listens there; check the URL, and that the cluster runs") from None
    except (OSError, RuntimeError, LookupError, TypeError, ValueError):
        raise InputError(f"{wrong} something else answers there; check the port, usually {DASHBOARD_PORT}") from None
