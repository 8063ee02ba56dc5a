"""A full disk is told in one line, whichever way a library reports it."""

import errno
from pathlib import Path

import pytest

from partitioning.common.disk import DiskFullError, report_full_disk


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
