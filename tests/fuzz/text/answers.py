"""Answers of a hostile job server, drawn by a seed."""

import base64
import io
import json
import random
import tarfile
import tomllib
import zlib
from collections.abc import Iterator
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

from raysim.cluster import parcel
from raysim.store.config_file import config_text
from tests.fuzz.text.hostile import text

JOB = "raysim-exp-20260101-000000-abcdef"
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
            files.append((entry("n" * 30_000_000, size=0), b""))
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
