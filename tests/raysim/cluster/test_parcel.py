"""A folder through a log: it arrives as it was, or not at all."""

import io
import os
import tarfile
import zlib
from base64 import b64encode
from collections.abc import Iterable
from hashlib import sha256
from itertools import repeat
from pathlib import Path
from random import Random

import pytest

from raysim.cluster import parcel
from raysim.cluster.parcel import FetchError, received, send


def sent(folder: Path, **given: int) -> list[str]:
    stream = io.StringIO()
    send(folder, stream, **given)
    return stream.getvalue().splitlines()


def receive(lines: Iterable[str], folder: Path, **given: int) -> None:
    with received(lines, folder, **given) as draft:
        assert draft is not None and not folder.exists()


def content(folder: Path) -> dict[str, bytes | None]:
    return {str(p.relative_to(folder)): p.read_bytes() if p.is_file() else None for p in sorted(folder.rglob("*"))}


def left(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = tmp_path / "raysim-x" / "run"
    (folder / "fedavg" / ("checkpoint" * 25)).mkdir(parents=True)
    (folder / "empty").mkdir()
    (folder / "config.toml").write_text("rounds = 1\n")
    (folder / "fedavg" / ("checkpoint" * 25) / "run.log").write_text("")
    (folder / "fedavg" / "model.safetensors").write_bytes(Random(0).randbytes(parcel.PIECE * 3 + 7))
    (folder / "fedavg" / "metrics.parquet").write_bytes(bytes(10**6))
    return folder


def test_a_folder_arrives_as_it_was_between_other_lines(run: Path, tmp_path: Path) -> None:
    lines = ["Runtime env is setting up.", *sent(run), "bye"]
    assert len(lines) > 20 and max(map(len, lines)) < 2**17
    receive(lines, tmp_path / "deep" / "here")
    assert content(tmp_path / "deep" / "here") == content(run) and left(tmp_path / "deep") == ["here"]


def test_what_is_not_there_is_nothing(tmp_path: Path) -> None:
    with received(sent(tmp_path / "no"), tmp_path / "here") as draft:
        assert draft is None
    assert left(tmp_path) == []


def test_a_folder_that_is_too_large_is_refused_there_and_here(run: Path, tmp_path: Path) -> None:
    with pytest.raises(FetchError, match="it has 1 MiB, and the limit is 1 MiB"):
        receive(sent(run, limit=2**20), tmp_path / "here")
    with pytest.raises(FetchError, match="it has more than 1,048,576 bytes"):
        receive(sent(run), tmp_path / "here", limit=2**20)
    many = [member(str(number), size=0) for number in range(40)]
    with pytest.raises(FetchError, match="no run writes its entry '32', or one of that size or number"):
        receive(packed(*many), tmp_path / "here", limit=2**20)
    with pytest.raises(FetchError, match="it has more than"):
        receive(repeat(""), tmp_path / "here", limit=2**20)
    assert left(tmp_path) == ["raysim-x"]


@pytest.mark.parametrize("damage", ["cut", "changed", "empty"])
def test_what_was_damaged_on_the_way_leaves_nothing(run: Path, tmp_path: Path, damage: str) -> None:
    lines = sent(run)
    broken = {"cut": lines[:-1], "changed": [lines[0], *lines], "empty": []}[damage]
    with pytest.raises(FetchError, match=r"breaks off after|bytes differ from those sent"):
        receive(broken, tmp_path / "here")
    assert left(tmp_path) == ["raysim-x"]


def member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "", size: int = 1) -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.type, made.linkname, made.size, made.mode = kind, link, size if kind == tarfile.REGTYPE else 0, 0o6777
    return made


def packed(*members: tarfile.TarInfo) -> list[str]:
    """Lines of an archive with these members, whose checksum is right."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        for each in members:
            tar.addfile(each, io.BytesIO(b"x" * each.size))
    return wrapped(archive.getvalue())


def wrapped(data: bytes) -> list[str]:
    """Lines of whatever bytes, whose checksum is right."""
    return [parcel.DATA + b64encode(zlib.compress(data)).decode(), parcel.END + sha256(data).hexdigest()]


@pytest.mark.parametrize(
    "lines",
    [
        packed(member("../outside")),
        packed(member("a/../../outside")),
        packed(member("/tmp/outside")),
        packed(member("link", tarfile.SYMTYPE, "/etc/passwd")),
        packed(member("link", tarfile.SYMTYPE, "inside")),
        packed(member("link", tarfile.LNKTYPE, "/etc/passwd")),
        packed(member("pipe", tarfile.FIFOTYPE)),
        packed(member("sparse", tarfile.GNUTYPE_SPARSE)),
        packed(member("x" * 400)),
        packed(member("d/" * 3000 + "x")),
        packed(member("n" * 10**6)),
        packed(member("\x1b[31m")),
        packed(member("a"), member("a")),
        packed(member("a"), member("b/../a")),
        packed(member("a"), member("a", tarfile.DIRTYPE)),
        packed(member("a", tarfile.DIRTYPE), member("a")),
        packed(member("a"), member("a/b")),
        wrapped(b"no archive"),
        [parcel.DATA + "A", parcel.END],
        [parcel.DATA + "AAAA", parcel.END],
    ],
)
def test_what_no_run_writes_is_refused_in_a_line_and_leaves_nothing(tmp_path: Path, lines: list[str]) -> None:
    with pytest.raises(FetchError, match=r"it is damaged|no run writes its entry|header has more than") as error:
        receive(lines, tmp_path / "deep" / "here")
    assert len(str(error.value)) < 300 and str(error.value).isprintable()
    assert left(tmp_path) == ["deep"] and left(tmp_path / "deep") == []


def test_a_folder_that_is_refused_does_not_appear(run: Path, tmp_path: Path) -> None:
    def refuse() -> None:
        with received(sent(run), tmp_path / "here") as draft:
            assert draft is not None and content(draft) == content(run)
            raise FetchError("wrong")

    with pytest.raises(FetchError, match="wrong"):
        refuse()
    assert left(tmp_path) == ["raysim-x"]


def test_a_file_may_come_before_its_folder_and_has_the_permissions_of_a_new_one(tmp_path: Path) -> None:
    receive(packed(member("a/b"), member("a", tarfile.DIRTYPE)), tmp_path / "here")
    assert content(tmp_path / "here") == {"a": None, "a/b": b"x"}
    (tmp_path / "new").touch()
    (tmp_path / "folder").mkdir()
    for path, like in (("here/a/b", "new"), ("here/a", "folder")):
        assert (tmp_path / path).stat().st_mode == (tmp_path / like).stat().st_mode


def test_what_arrived_survives_a_power_failure(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced, fsync = set[int](), os.fsync

    def noted(descriptor: int) -> None:
        fsync(descriptor)
        synced.add(os.fstat(descriptor).st_ino)

    monkeypatch.setattr(os, "fsync", noted)
    receive(sent(run), tmp_path / "here")
    here = tmp_path / "here"
    assert {path.stat().st_ino for path in (tmp_path, here, *here.rglob("*"))} <= synced
