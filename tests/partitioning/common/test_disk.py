"""A full disk is told in one line, whichever way a library reports it; a file is written whole or not at all."""

import errno
import fnmatch
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from partitioning.common.disk import DiskFullError, report_full_disk, write_whole


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, "nothing"),
        OSError(errno.EDQUOT, "nothing"),
        RuntimeError("cannot write: No space left on device"),
    ],
)
def test_a_full_disk_is_known_by_its_number_or_its_message(error: Exception, tmp_path: Path) -> None:
    told = r"x cannot be written \(.*; [\d,.]+ MB are free there\): make room"
    with pytest.raises(DiskFullError, match=told), report_full_disk(tmp_path / "x"):
        raise error


def test_other_errors_stay(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="denied") as raised, report_full_disk(tmp_path / "x"):
        raise OSError(errno.EACCES, "denied")
    assert not isinstance(raised.value, DiskFullError)


def test_each_of_two_writers_of_a_file_writes_it_whole(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    with write_whole(page) as outer:
        outer.write_text("the first half")
        with write_whole(page) as inner:
            inner.write_text("another writer's page")
        assert page.read_text() == "another writer's page"
        with outer.open("a") as file:
            file.write(", and the second")
    assert page.read_text() == "the first half, and the second"
    assert list(tmp_path.iterdir()) == [page]


KILLED = """
import os, sys
from pathlib import Path
from partitioning.common.disk import write_whole
with write_whole(Path(sys.argv[1])) as draft:
    draft.write_text("half")
    os._exit(0)
"""


def test_a_failure_leaves_the_file_before_and_no_draft(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text("before")
    with pytest.raises(FileNotFoundError), write_whole(page) as draft:
        draft.write_bytes(b"half" + (tmp_path / "nowhere").read_bytes())
    assert page.read_text() == "before" and list(tmp_path.iterdir()) == [page]


def test_a_later_writer_removes_the_draft_of_a_killed_process(tmp_path: Path) -> None:
    page, other = tmp_path / "a[1] page.html", tmp_path / "other.html"
    subprocess.run([sys.executable, "-c", KILLED, page], check=True)
    (left,) = tmp_path.iterdir()
    assert fnmatch.fnmatch(left.name, ".*.partial.*"), "a run's own patterns of drafts"
    for age, path, stays in ((0, page, True), (2, other, True), (2, page, False)):
        at = time.time() - age * 24 * 60 * 60
        os.utime(left, (at, at))
        with write_whole(path) as draft:
            draft.write_text("whole")
        assert left.exists() == stays
    assert sorted(path.name for path in tmp_path.iterdir()) == [page.name, other.name]


@pytest.mark.parametrize(
    "name", ["x" * 250 + ".html", "\U0001f600" * 62 + ".svg", "page." + "x" * 250], ids=["stem", "bytes", "ending"]
)
def test_a_name_may_be_as_long_as_the_file_system_allows(name: str, tmp_path: Path) -> None:
    with write_whole(tmp_path / name) as draft:
        draft.write_text("whole")
    assert [path.name for path in tmp_path.iterdir()] == [name]
