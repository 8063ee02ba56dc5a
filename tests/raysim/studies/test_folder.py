"""Folders of studies that cannot be made."""

from pathlib import Path

import pytest

from raysim.common.errors import InputError
from raysim.studies.folder import study_folder


def test_a_folder_that_cannot_be_made_has_a_remedy(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    message = r"out = .*: must be a folder that raysim can create \(Not a directory\); choose another$"
    with pytest.raises(InputError, match=message), study_folder(tmp_path / "file" / "study"):
        raise AssertionError
