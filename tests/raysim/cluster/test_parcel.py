"""A folder through a log: it arrives as it was, or not at all."""

import gzip
import io
import json
import tarfile
from base64 import b64encode
from hashlib import sha256
from itertools import repeat
from pathlib import Path

import pytest

from raysim.cluster import parcel
from raysim.cluster.parcel import ParcelError, receive, remove, send


def sent(folder: Path, **given: int) -> list[str]:
    stream = io.StringIO()
    send(folder, stream, **given)
    return stream.getvalue().splitlines()


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = tmp_path / "raysim-x" / "run"
    (folder / "fedavg" / "checkpoint").mkdir(parents=True)
    (folder / "empty").mkdir()
    (folder / "config.toml").write_text("rounds = 1\n")
    (folder / "fedavg" / "model.safetensors").write_bytes(bytes(range(256)) * 1000)
    return folder


def content(folder: Path) -> dict[str, bytes | None]:
    return {str(p.relative_to(folder)): p.read_bytes() if p.is_file() else None for p in sorted(folder.rglob("*"))}


def test_a_folder_arrives_as_it_was_between_other_lines(run: Path, tmp_path: Path) -> None:
    lines = ["Runtime env is setting up.", *sent(run), "bye"]
    assert receive(lines, tmp_path / "deep" / "here")
    assert content(tmp_path / "deep" / "here") == content(run)
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["here"]


def test_large_pieces_are_many_lines(tmp_path: Path) -> None:
    import random

    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "x").write_bytes(random.Random(0).randbytes(parcel.PIECE * 3 + 7))
    lines = sent(tmp_path / "run")
    assert len(lines) == 5 and receive(lines, tmp_path / "here")
    assert content(tmp_path / "here") == content(tmp_path / "run")


def test_what_is_not_there_is_nothing(tmp_path: Path) -> None:
    assert not receive(sent(tmp_path / "no"), tmp_path / "here")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_too_large_is_refused_there(run: Path, tmp_path: Path) -> None:
    with pytest.raises(ParcelError, match="it has 0 MiB, and the limit is 0 MiB"):
        receive(sent(run, limit=1000), tmp_path / "here")


def test_what_unpacks_to_more_than_the_limit_is_refused_here(run: Path, tmp_path: Path) -> None:
    with pytest.raises(ParcelError, match="no run writes its entry"):
        receive(sent(run), tmp_path / "here", limit=1000)
    assert not (tmp_path / "here").exists()


@pytest.mark.parametrize("damage", ["cut", "changed", "empty"])
def test_what_was_damaged_on_the_way_leaves_nothing(run: Path, tmp_path: Path, damage: str) -> None:
    lines = sent(run)
    broken = {"cut": lines[:-1], "changed": [lines[0][:-8] + "AAAAAAA=", *lines[1:]], "empty": []}[damage]
    with pytest.raises(ParcelError, match=r"breaks off after|bytes differ from those sent|it is damaged"):
        receive(broken, tmp_path / "here")
    assert [path.name for path in tmp_path.iterdir()] == ["raysim-x"]


def packed(*members: tarfile.TarInfo) -> list[str]:
    """Lines of an archive with these members, whose size and checksum are right."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        for each in members:
            tar.addfile(each, io.BytesIO(b"x" * each.size))
    return wrapped(gzip.compress(archive.getvalue()))


def wrapped(data: bytes) -> list[str]:
    """Lines of whatever bytes, whose size and checksum are right."""
    end = json.dumps({"bytes": len(data), "sha256": sha256(data).hexdigest()})
    return [parcel.DATA + b64encode(data).decode(), parcel.END + end]


def member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.type, made.linkname, made.size = kind, link, 1 if kind == tarfile.REGTYPE else 0
    return made


@pytest.mark.parametrize(
    "wrong",
    [
        member("../outside"),
        member("a/../../outside"),
        member("/tmp/outside"),
        member("link", tarfile.SYMTYPE, "/etc/passwd"),
        member("link", tarfile.LNKTYPE, "/etc/passwd"),
        member("pipe", tarfile.FIFOTYPE),
    ],
    ids=lambda each: f"{each.name} {each.type!r}",
)
def test_nothing_is_unpacked_outside_of_the_folder(tmp_path: Path, wrong: tarfile.TarInfo) -> None:
    with pytest.raises(ParcelError, match="no run writes its entry"):
        receive(packed(wrong), tmp_path / "deep" / "here")
    assert list((tmp_path / "deep").iterdir()) == [] and not (tmp_path / "outside").exists()


@pytest.mark.parametrize(
    "lines",
    [
        wrapped(b"no archive"),
        wrapped(gzip.compress(b"no archive")),
        wrapped(gzip.compress(bytes(4096))[:12]),
        [parcel.DATA + "A", parcel.END + "{}"],
        [parcel.DATA + "AAAA", parcel.END + "{"],
        packed(member("a"), member("a")),
        packed(member("a"), member("a", tarfile.DIRTYPE)),
        packed(member("a", tarfile.DIRTYPE), member("a")),
    ],
)
def test_what_is_no_parcel_is_told_in_a_line_and_leaves_nothing(tmp_path: Path, lines: list[str]) -> None:
    with pytest.raises(ParcelError, match=r"it is damaged|no run writes its entry"):
        receive(lines, tmp_path / "here")
    assert not list(tmp_path.iterdir())


def test_an_endless_log_ends(tmp_path: Path) -> None:
    with pytest.raises(ParcelError, match="its log has more than"):
        receive(repeat("x" * 2**17), tmp_path / "here", limit=1000)
    assert not list(tmp_path.iterdir())


def test_a_folder_is_completed_before_it_appears(run: Path, tmp_path: Path) -> None:
    def fail(draft: Path) -> None:
        assert (draft / "config.toml").exists() and not (tmp_path / "here").exists()
        raise ParcelError("wrong")

    with pytest.raises(ParcelError, match="wrong"):
        receive(sent(run), tmp_path / "here", complete=fail)
    assert [path.name for path in tmp_path.iterdir()] == ["raysim-x"]


def test_a_file_may_come_before_its_folder(tmp_path: Path) -> None:
    assert receive(packed(member("a/b")), tmp_path / "here")
    assert (tmp_path / "here" / "a" / "b").read_bytes() == b"x"


def test_only_the_folder_of_a_job_is_removed(run: Path, tmp_path: Path) -> None:
    (tmp_path / "mine" / "run").mkdir(parents=True)
    remove(tmp_path / "mine" / "run")
    assert (tmp_path / "mine" / "run").exists()
    remove(run)
    assert not run.parent.exists()
