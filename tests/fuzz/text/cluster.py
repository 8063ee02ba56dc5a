"""A hostile job server by seed: `python -m tests.fuzz jobs FIRST STOP` follows a job of it for each seed.

It holds where `raysim follow` ends with 0, 1 or 2, soon, with short printable lines, and has written nothing but plain
files below `runs/JOB`, whatever the server says. The server is a real one, on loopback.
"""

import asyncio
import base64
import gzip
import io
import json
import os
import platform
import random
import signal
import stat
import sys
import tarfile
import tempfile
import threading
import tomllib
import zlib
from collections import Counter
from collections.abc import Iterator
from contextlib import chdir, contextmanager, redirect_stderr, redirect_stdout, suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

import click
import ray
from aiohttp import web

from partitioning.cli.exit_status import run_command
from raysim.cli.commands import cli
from raysim.cluster import parcel
from raysim.store.config_file import config_text
from tests.fuzz.text.hostile import text, wrong

JOB = "raysim-exp-20260101-000000-abcdef"
SECONDS = 300
"""Time of a case; to refuse 40,000 files takes a minute on a busy machine."""

CONFIG = 'modules = ["{here}"]\n[data]\ndataset = "digits"\n[model]\nname = "evil:f"\n[[algorithm]]\nname = "evil:f"\n'
EVIL = "open({pwned!r}, 'w').write('pwned')\ndef f(*_, **__): pass\n"
SUMMARY = {"metrics": {"test_accuracy": 0.5}, "rounds": 1, "seconds": 1.0, "bytes_up": 1, "bytes_down": 1}


def junk(rng: random.Random, depth: int = 0) -> Any:
    """A JSON value of any type."""
    simple = [None, True, -1, 2**70, 1e308, "nan", text(rng, rare=False), [], {}]
    if depth > 2 or rng.random() < 0.7:
        return rng.choice(simple)
    return {text(rng, rare=False): junk(rng, depth + 1)} if rng.random() < 0.5 else [junk(rng, depth + 1)]


class Hostile:
    """Answers of the server of a seed.

    Args:
        seed: of all draws.
        victim: folder that the job's metadata name.
    """

    def __init__(self, seed: int, victim: Path) -> None:
        self.rng = rng = random.Random(seed)
        self.victim = victim
        self.kind = rng.choice(
            ("sound", "parcel", "parcel", "parcel", "lines", "lines", "metadata", "metadata", "answers", "run")
        )
        self.stage = f"/tmp/{JOB}/exp"

    def metadata(self) -> Any:
        rng = self.rng
        paths: Any = {
            "data.dataset": "digits",
            "data.root": text(rng, rare=False),
            "modules": [str(self.victim)],
        }
        sound = {"stage": self.stage, "out": str(self.victim / "out"), "paths": paths}
        if self.kind != "metadata":
            return {"raysim": json.dumps(sound)}
        sound[rng.choice(("stage", "out", "paths"))] = rng.choice(
            (
                junk(rng),
                str(self.victim),
                f"{self.victim}/../x",
                self.victim.as_uri(),
                "/",
                "",
                text(rng),
                paths | {"data.test": junk(rng)},
            )
        )
        stored = rng.choice(
            (json.dumps(sound), json.dumps(sound), "[" * 100_000, text(rng), json.dumps(junk(rng)), "1" * 5000)
        )
        return rng.choice(({"raysim": stored}, {"raysim": stored}, junk(rng)))

    def details(self) -> Any:
        rng = self.rng
        failed = self.kind == "lines" and rng.random() < 0.5
        answer = {
            "type": "SUBMISSION",
            "submission_id": JOB,
            "job_id": None,
            "status": "FAILED" if failed else "SUCCEEDED",
            "entrypoint": text(rng, rare=False),
            "message": text(rng, rare=False),
            "error_type": text(rng, rare=False) if failed else None,
            "driver_exit_code": rng.choice((None, 1, 2, -9)) if failed else 0,
            "metadata": self.metadata(),
        }
        if self.kind == "answers":
            answer[rng.choice(list(answer))] = junk(rng)
        return answer

    def lines(self) -> Iterator[str]:
        rng = self.rng
        for _ in range(rng.randint(0, 12)):
            drawn = text(rng)
            count = rng.choice((-1, 0, 1, 7, 10**12, 10**400, True, junk(rng)))
            events: tuple[Any, ...] = (
                ["stage", drawn],
                ["notice", drawn],
                ["begin", drawn, count, rng.choice((0, 5, count))],
                ["block", count],
                ["round", count, {drawn: count, "test_accuracy": junk(rng)}],
                junk(rng),
            )
            yield rng.choice(
                (
                    drawn,
                    drawn,
                    f"raysim: {drawn}",
                    "::raysim:: " + json.dumps(rng.choice(events)),
                    "::raysim:: " + "[" * 50_000,
                )
            )

    def files(self) -> list[tuple[tarfile.TarInfo, bytes]]:
        """The entries of a run, most of them sound."""
        rng = self.rng
        here = str(Path("runs", JOB).absolute())
        config: bytes = config_text(tomllib.loads(CONFIG.format(here=here))).encode()
        summary: bytes = json.dumps(SUMMARY).encode()
        if self.kind == "run":
            config = rng.choice(
                (
                    config,
                    b"",
                    b"a = [" * 100_000,
                    b"x = 1\n" * 10**6,
                    text(rng).encode(errors="replace"),
                    b"algorithm = 3",
                )
            )
            broken = {**SUMMARY, rng.choice(list(SUMMARY)): junk(rng)}
            summary = rng.choice(
                (json.dumps(broken).encode(), b"[" * 100_000, b"\xff", b"1" * 10_000, json.dumps(junk(rng)).encode())
            )
        given = {
            "config.toml": config,
            "run.log": b"x",
            "evil.py": EVIL.format(pwned=str(self.victim / "pwned")).encode(),
            "evil:f/summary.json": summary,
            "f/summary.json": summary,
        }
        return [(entry(name, size=len(data)), data) for name, data in given.items()]

    def parcel(self) -> list[str]:
        rng = self.rng
        files = self.files()
        if self.kind != "parcel":
            return wrapped(packed(files))
        out = str(self.victim / "planted")
        strange = rng.choice(
            (
                entry("../planted"),
                entry("a/../../planted"),
                entry(out),
                entry("link", tarfile.SYMTYPE, out),
                entry("hard", tarfile.LNKTYPE, out),
                entry("pipe", tarfile.FIFOTYPE),
                entry("device", tarfile.CHRTYPE),
                entry("config.toml"),
                entry("run.log", tarfile.DIRTYPE),
                entry("run.log/below"),
                entry("suid", mode=0o6777),
                entry(text(rng, without="\x00") or "x"),
                entry("x" * 400),
                entry("d/" * 3000 + "x"),
                entry("sparse", tarfile.GNUTYPE_SPARSE),
                entry("many"),
                entry("bomb"),
                entry("longname"),
                entry("\x1b[31m"),
            )
        )
        if strange.name == "many":
            files += [(entry(f"f{number}", size=0), b"") for number in range(40_000)]
        elif strange.name == "longname":
            files.append((entry("n" * 30_000_000), b""))
        elif strange.name == "bomb":
            return bomb()
        else:
            files.insert(rng.randrange(len(files) + 1), (strange, b"x" * strange.size))
            if strange.type == tarfile.SYMTYPE:
                files.append((entry("link/below"), b"x"))
        data = packed(files)
        choice = rng.random()
        if choice < 0.1:
            data = data[: len(data) // 2]
        elif choice < 0.2:
            data = bytes(rng.randbytes(len(data)))
        lines = wrapped(data)
        if rng.random() < 0.15:
            lines = rng.choice(
                (
                    lines[:-1],
                    [parcel.REFUSED + text(rng)],
                    [parcel.END + sha256().hexdigest()],
                    [parcel.END + "[" * 100_000],
                    [*lines[:-1], parcel.END + text(rng)],
                )
            )
        return [text(rng), *lines]


def entry(
    name: str, kind: bytes = tarfile.REGTYPE, link: str = "", *, mode: int = 0o644, size: int | None = None
) -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.type, made.linkname, made.mode = kind, link, mode
    made.size = (1 if kind == tarfile.REGTYPE else 0) if size is None else size
    return made


def packed(files: list[tuple[tarfile.TarInfo, bytes]]) -> bytes:
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w", errors="surrogateescape") as tar:
        for each, data in files:
            with suppress(UnicodeError):
                tar.addfile(each, io.BytesIO(data))
    return archive.getvalue()


def bomb() -> list[str]:
    """Lines of an archive of one file of two gigabytes of zeros, whose checksum is of no use."""
    header = entry("zeros", size=2**31).tobuf()
    return [*wrapped(header)[:1], *wrapped(bytes(2**26), 2**26)[:1] * 32, parcel.END]


def wrapped(data: bytes, size: int = parcel.PIECE) -> list[str]:
    pieces = [zlib.compress(data[start : start + size], 1) for start in range(0, len(data), size)]
    return [*(parcel.DATA + base64.b64encode(each).decode() for each in pieces), parcel.END + sha256(data).hexdigest()]


@contextmanager
def serving(hostile: Hostile) -> Iterator[str]:
    """A job server that says what a seed draws; its URL."""
    rng = hostile.rng

    async def about(request: web.Request) -> web.StreamResponse:
        if request.path == "/api/version":
            return web.json_response(
                {"version": "4", "ray_version": ray.__version__, "ray_commit": "x", "session_name": "x"}
            )
        return web.json_response({"data": {"rayVersion": ray.__version__, "pythonVersion": platform.python_version()}})

    async def details(request: web.Request) -> web.StreamResponse:
        if hostile.kind == "answers":
            match rng.randrange(6):
                case 0:
                    return web.Response(
                        status=rng.choice((302, 307)), headers={"Location": str(request.url.with_path("/elsewhere"))}
                    )
                case 1:
                    return web.Response(status=500, text=text(rng).encode(errors="replace").decode())
                case 2:
                    return web.Response(body=b"[" * 200_000)
                case 3:
                    return web.Response(body=b'"' + b"x" * 2**25 + b'"')
                case 4:
                    return web.Response(body=gzip.compress(bytes(2**27)), headers={"Content-Encoding": "gzip"})
        return web.Response(text=json.dumps(hostile.details()), content_type="application/json")

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

    application = web.Application(client_max_size=2**28)
    application.add_routes(
        [
            web.get("/api/version", about),
            web.get("/api/v0/cluster_metadata", about),
            web.get("/api/jobs/{job}/logs/tail", log),
            web.get("/api/jobs/{job}", details),
            web.post("/api/jobs/", submitted),
            web.route("*", "/{any:.*}", whatever),
        ]
    )
    loop, port, ready = asyncio.new_event_loop(), [0], threading.Event()

    async def start() -> web.AppRunner:
        runner = web.AppRunner(application, shutdown_timeout=0.1)
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
