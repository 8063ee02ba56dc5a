"""Addresses at which no cluster is that we could use: each is one line, soon."""

import json
import platform
import socket
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace
from typing import Any

import pytest
import ray
from aiohttp import ServerDisconnectedError
from ray.job_submission import JobStatus

from raysim.cluster.head import LOST_SECONDS, MAX_LINE, Head, HeadLostError
from raysim.common.errors import InputError
from raysim.fleet.ray_runtime import check_answers


@contextmanager
def serving(answers: dict[str, object], status: int = 200) -> Iterator[str]:
    """A server of HTTP that gives these answers, as JSON, and to all else 404; its URL."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status if self.path in answers else 404)
            self.end_headers()
            self.wfile.write(json.dumps(answers.get(self.path, "none")).encode())

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def listening(accepts: bool = True) -> Iterator[str]:
    """HOST:PORT of what takes connections and never says a word, or of what has no room for another connection."""
    with ExitStack() as stack:
        there = stack.enter_context(socket.socket())
        there.bind(("127.0.0.1", 0))
        there.listen(8 if accepts else 0)
        for _ in range(0 if accepts else 4):
            other = stack.enter_context(socket.socket())
            other.setblocking(False)
            other.connect_ex(there.getsockname())
        yield f"127.0.0.1:{there.getsockname()[1]}"


def refusal(address: str) -> str:
    started = time.monotonic()
    with pytest.raises(InputError) as refused:
        Head(address)
    assert time.monotonic() - started < 30
    return str(refused.value)


@pytest.mark.parametrize(
    "address", ["10.0.0.1:6379", "localhost", "http://", "ftp://x:8265", "http://x:99999", "ray://x:10001"]
)
def test_what_is_no_url_of_a_dashboard(address: str) -> None:
    assert f"--address = {address!r}: must be the URL of the dashboard of a Ray cluster, such as" in refusal(address)


@pytest.mark.parametrize("address", ["http://127.0.0.1:1", "http://nosuch.invalid:8265"])
def test_where_nothing_listens(address: str) -> None:
    assert "and nothing listens there" in refusal(address)


@pytest.mark.slow
def test_what_swallows_every_packet() -> None:
    with listening(accepts=False) as address:
        assert "nothing answered within 20 s" in refusal(f"http://{address}")


@pytest.mark.slow
def test_what_takes_a_connection_and_is_silent() -> None:
    with listening() as address:
        assert "nothing answered within 20 s" in refusal(f"http://{address}")


@pytest.mark.slow
def test_what_answers_byte_by_byte_is_given_up() -> None:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            with suppress(OSError):
                for _ in range(120):
                    self.wfile.write(b"x")
                    time.sleep(1)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        assert "nothing answered within 20 s" in refusal(f"http://127.0.0.1:{server.server_port}")
    finally:
        server.shutdown()
        thread.join()
        server.socket.close()


def test_a_line_without_an_end_is_cut() -> None:
    class Client(Head):
        def __init__(self) -> None:
            self.address, self._read = "http://127.0.0.1:1", Counter()

        def _tail(self, job: str) -> Iterator[str]:
            yield from ["a\n", *["x" * 2**16] * 5, "y\nb\n"]

        def get_job_info(self, job: str) -> Any:
            return SimpleNamespace(status=JobStatus.SUCCEEDED)

    assert [(line[0], len(line)) for line in Client().lines("job")] == [("a", 1), ("x", MAX_LINE), ("b", 1)]


def test_a_server_of_something_else() -> None:
    with serving({}) as address:
        assert "something else answers there; check the port" in refusal(address)
    with serving({"/api/version": "hello"}) as address:
        assert "something else answers there; check the port" in refusal(address)


@pytest.mark.parametrize(
    ("ray_there", "python_there"), [("2.9.1", platform.python_version()), (ray.__version__, "3.99.1")]
)
def test_a_cluster_of_other_versions(ray_there: str, python_there: str) -> None:
    version = {"version": "4", "ray_version": ray_there, "ray_commit": "x", "session_name": "x"}
    about = {"data": {"rayVersion": ray_there, "pythonVersion": python_there}}
    with serving({"/api/version": version, "/api/v0/cluster_metadata": about}) as address:
        said = refusal(address)
    assert f"the cluster has Ray {ray_there} and Python 3." in said and "must be the same" in said


@pytest.mark.parametrize(("status", "what"), [(401, "no token was sent"), (403, "another token was sent")])
def test_a_cluster_that_wants_a_token(status: int, what: str) -> None:
    with serving({"/api/version": {}}, status) as address:
        assert f"the cluster wants its token, and {what}; set RAY_AUTH_MODE=token" in refusal(address)


@pytest.mark.parametrize("variable", ["RAY_ADDRESS", "RAY_API_SERVER_ADDRESS"])
def test_the_address_that_is_given_counts(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(variable, "http://127.0.0.1:2")
    with serving({"/api/version": "hello"}) as address:
        assert address in refusal(address)


def test_run_takes_no_url_and_names_what_does() -> None:
    with pytest.raises(InputError, match="not a URL; `raysim submit FILE --address http://x:8265` sends a run there"):
        check_answers("http://x:8265")


def test_run_finds_out_that_something_else_answers() -> None:
    with serving({}) as address, pytest.raises(InputError, match="something else answers there; check the port"):
        check_answers(address.removeprefix("http://"))


@pytest.mark.slow
@pytest.mark.parametrize("accepts", [True, False])
def test_run_finds_out_soon_that_nothing_answers(accepts: bool) -> None:
    started = time.monotonic()
    with listening(accepts) as address, pytest.raises(InputError, match="nothing answers there"):
        check_answers(address)
    assert time.monotonic() - started < 30


def test_a_log_goes_on_where_a_server_between_did_not_let_it_through(monkeypatch: pytest.MonkeyPatch) -> None:
    tries: list[str] = []

    class Client(Head):
        def __init__(self) -> None:
            self.address, self._read = "http://127.0.0.1:1", Counter()

        async def tail_job_logs(self, job: str) -> AsyncIterator[str]:
            tries.append(job)
            if len(tries) == 1:
                yield "one\ntw"
            if len(tries) < 3:
                raise ServerDisconnectedError()
            yield "one\ntwo\n"

        def get_job_info(self, job: str) -> Any:
            return SimpleNamespace(status=JobStatus.SUCCEEDED)

    monkeypatch.setattr("time.sleep", lambda seconds: None)
    assert list(Client().lines("job")) == ["one", "two"]
    assert len(tries) == 3


class Interrupted(Head):
    """Head whose connection breaks after a silence, so often; its clock shows only the waits."""

    def __init__(self, silence: float, times: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self.address, self._read = "http://127.0.0.1:1", Counter()
        self.now, self._silence, self._times = 1000.0, silence, times

        def sleep(seconds: float) -> None:
            self.now += seconds

        clock = SimpleNamespace(monotonic=lambda: self.now, sleep=sleep)
        monkeypatch.setattr("raysim.cluster.head.time", clock)

    def _tail(self, job: str) -> Iterator[str]:
        self._times -= 1
        if self._times < 0:
            yield "one\ntwo\n"
            return
        if self._silence:
            yield "one\n"
            self.now += self._silence
        raise RuntimeError("WebSocket connection closed unexpectedly with close code 1006")

    def get_job_info(self, job: str) -> Any:
        return SimpleNamespace(status=JobStatus.SUCCEEDED)


def test_a_connection_that_breaks_after_a_long_silence_is_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    assert list(Interrupted(3600, 1, monkeypatch).lines("job")) == ["one", "two"]


def test_a_head_without_an_answer_for_half_a_minute_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    assert list(Interrupted(0, 29, monkeypatch).lines("job")) == ["one", "two"]
    head = Interrupted(0, 100, monkeypatch)
    with pytest.raises(HeadLostError, match="does not answer any more"):
        list(head.lines("job"))
    assert 1000 + LOST_SECONDS <= head.now <= 1001 + LOST_SECONDS
