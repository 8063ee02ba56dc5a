"""The run folder: who has it, and what is left of it."""

from pathlib import Path

import pytest

from raysim.errors import InputError
from raysim.folder import algorithm_names, run_folder


def fail_in(out: Path, made: Path) -> None:
    """A run whose input turns out to be wrong after it has made something."""
    with run_folder(out):
        made.mkdir()
        raise InputError("wrong")


def test_only_one_of_two_runs_gets_a_folder(tmp_path: Path) -> None:
    with run_folder(tmp_path / "run"):
        with pytest.raises(InputError, match="already holds a run"), run_folder(tmp_path / "run"):
            pass
        assert (tmp_path / "run" / "run.log").exists()


def test_wrong_input_leaves_a_folder_that_was_there_empty(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    for out in (tmp_path / "real", tmp_path / "link"):
        with pytest.raises(InputError, match="wrong"):
            fail_in(out, out / "population")
        assert list((tmp_path / "real").iterdir()) == []


def test_parents_that_another_run_uses_stay(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="wrong"):
        fail_in(tmp_path / "runs" / "one", tmp_path / "runs" / "two")
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["two"]


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="--out"), run_folder(tmp_path / "file"):
        pass


def test_a_repeated_algorithm_is_numbered() -> None:
    assert algorithm_names([]) == []
    assert algorithm_names(["fedavg", "radfed", "fedavg", "fedavg"]) == ["fedavg", "radfed", "fedavg-2", "fedavg-3"]
