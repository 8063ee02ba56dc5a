"""A hostile job server by seed: `python -m tests.fuzz jobs FIRST STOP` follows a job of it for each seed.

It holds where `raysim follow` ends with 0, 1 or 2, soon, with short printable lines, and has written nothing but plain
files below `runs/JOB`, whatever the server says. The server is a real one, on loopback.
"""

import asyncio
import gzip
import io
import json
import os
import platform
import random
import signal
import stat
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import chdir, contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path

import click
import ray
from aiohttp import web

from partitioning.cli.exit_status import run_command
from raysim.cli.commands import cli
from tests.fuzz.text.answers import JOB, Hostile
from tests.fuzz.text.hostile import text, wrong

SECONDS = 300
"""Time of a case; to refuse 40,000 files takes a minute on a busy machine."""


def application(hostile: Hostile) -> web.Application:
    """The pages of a job server that says what a seed draws."""
    rng = hostile.rng

    async def about(request: web.Request) -> web.StreamResponse:
        if request.path == "/api/version":
            return web.json_response(
                {"version": "4", "ray_version": ray.__version__, "ray_commit": "x", "session_name": "x"}
            )
        return web.json_response({"data": {"rayVersion": ray.__version__, "pythonVersion": platform.python_version()}})

    async def details(request: web.Request) -> web.StreamResponse:
        strange = STRANGE[rng.randrange(6)](request, rng) if hostile.kind == "answers" else None
        return strange or web.Response(text=json.dumps(hostile.details()), content_type="application/json")

    async def log(request: web.Request) -> web.StreamResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        lines = hostile.parcel() if "-parcel-" in request.match_info["job"] else list(hostile.lines())
        for line in lines:
            await socket.send_str(line.encode(errors="replace").decode() + "\n")
        await socket.close()
        return socket

    async def submitted(request: web.Request) -> web.StreamResponse:
        given = await request.json()
        return web.json_response({"job_id": given["submission_id"], "submission_id": given["submission_id"]})

    async def whatever(_: web.Request) -> web.StreamResponse:
        return web.json_response({"stopped": True})

    made = web.Application(client_max_size=2**28)
    made.add_routes(
        [
            web.get("/api/version", about),
            web.get("/api/v0/cluster_metadata", about),
            web.get("/api/jobs/{job}/logs/tail", log),
            web.get("/api/jobs/{job}", details),
            web.post("/api/jobs/", submitted),
            web.route("*", "/{any:.*}", whatever),
        ]
    )
    return made


def _elsewhere(request: web.Request, rng: random.Random) -> web.Response:
    to = {"Location": str(request.url.with_path("/elsewhere"))}
    return web.Response(status=rng.choice((302, 307)), headers=to)


STRANGE: tuple[Callable[[web.Request, random.Random], web.Response | None], ...] = (
    _elsewhere,
    lambda _, rng: web.Response(status=500, text=text(rng).encode(errors="replace").decode()),
    lambda *_: web.Response(body=b"[" * 200_000),
    lambda *_: web.Response(body=b'"' + b"x" * 2**25 + b'"'),
    lambda *_: web.Response(body=gzip.compress(bytes(2**27)), headers={"Content-Encoding": "gzip"}),
    lambda *_: None,
)
"""Answers that are no details of a job; None for sound ones."""


@contextmanager
def serving(hostile: Hostile) -> Iterator[str]:
    """A job server that says what a seed draws; its URL."""
    loop, port, ready = asyncio.new_event_loop(), [0], threading.Event()

    async def start() -> web.AppRunner:
        runner = web.AppRunner(application(hostile), shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        assert site._server is not None
        port[0] = site._server.sockets[0].getsockname()[1]  # type: ignore[attr-defined]
        ready.set()
        return runner

    def work() -> None:
        runner = loop.run_until_complete(start())
        loop.run_forever()
        loop.run_until_complete(runner.cleanup())
        loop.close()

    thread = threading.Thread(target=work)
    thread.start()
    ready.wait()
    try:
        yield f"http://127.0.0.1:{port[0]}"
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()


class Output(io.StringIO):
    """A stream with the encoding of a terminal."""

    encoding = "utf-8"  # type: ignore[assignment]


def followed(address: str) -> tuple[int, str]:
    """Follow the job by the command line, in this process."""
    shown = Output()
    with redirect_stdout(shown), redirect_stderr(shown):
        try:
            run_command(cli, "raysim", ["follow", JOB, "--address", address])
        except SystemExit as end:
            return int(end.code or 0), shown.getvalue()
        except Exception as error:
            return 1, f"Traceback (most recent call last): {type(error).__name__}: {error}"
    raise AssertionError


def check(seed: int) -> tuple[str, str]:
    """Follow the job of a seed; return its kind, and what is wrong."""
    with tempfile.TemporaryDirectory() as name:
        home, victim = Path(name, "home"), Path(name, "victim")
        home.mkdir()
        victim.mkdir()
        (victim / "config.toml").write_text("mine")
        hostile = Hostile(seed, victim)
        signal.signal(signal.SIGALRM, lambda *_: (os.write(2, f"seed {seed} hangs\n".encode()), os.abort()))
        signal.alarm(SECONDS)
        try:
            with chdir(home), serving(hostile) as address:
                status, shown = followed(address)
        finally:
            signal.alarm(0)
        sys.modules.pop("evil", None)
        found = wrong(shown) or (f"status {status}" if status not in (0, 1, 2) else "") or left(home, victim)
        if hostile.kind == "sound" and status != 0:
            found = found or f"a sound job ends with {status}: {shown[-500:]}"
        return hostile.kind, found


def left(home: Path, victim: Path) -> str:
    """Say what was written that should not have been."""
    if (
        sorted(path.name for path in victim.iterdir()) != ["config.toml"]
        or (victim / "config.toml").read_text() != "mine"
    ):
        return f"the victim's folder has {sorted(path.name for path in victim.iterdir())}"
    for path in home.rglob("*"):
        place, mode = path.relative_to(home), path.lstat().st_mode
        if place.parts[:2] not in {("runs",), ("runs", JOB)}:
            return f"{place} was written"
        if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)) or mode & 0o6000:
            return f"{place} is not a plain file"
        if not path.name.isprintable():
            return f"{place!s:.100} has a strange name"
    return ""


def main() -> None:
    first, stop = map(int, sys.argv[1:3])
    drawn, failed = Counter[str](), Counter[str]()
    for seed in range(first, stop):
        kind, found = check(seed)
        drawn[kind] += 1
        if found:
            failed[kind] += 1
            click.echo(f"seed {seed}, {kind}: {ascii(found)[:300]}")
    for kind in sorted(drawn):
        click.echo(f"{kind}: {drawn[kind]} drawn, {failed[kind]} failed")
    raise SystemExit(bool(failed))


if __name__ == "__main__":
    main()
