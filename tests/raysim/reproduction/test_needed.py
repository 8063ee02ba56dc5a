"""Files that reproductions read: the commands that make them, and their contents."""

from pathlib import Path

import pytest

from raysim.common.errors import InputError
from raysim.config.check import flat
from raysim.data.catalogue import FILE
from raysim.reproduction.file import read_reproduction, reproductions
from raysim.reproduction.needed import COMMANDS, check_files, downloads
from raysim.reproduction.reproducing import reproduce


def test_each_file_of_a_bundled_reproduction_has_a_command() -> None:
    named = {
        value.removeprefix(FILE)
        for name in reproductions()
        for full in (False, True)
        for _, value in flat(read_reproduction(name).study(full=full))
        if isinstance(value, str) and value.startswith(FILE)
    }
    assert named and named <= COMMANDS.keys()


def test_a_missing_file_is_refused_before_the_first_trial(tmp_path: Path) -> None:
    message = r"^data.dataset = 'file:cifar10-train.parquet': .* is missing; make it by raysim export cifar10 .*"
    with pytest.raises(InputError, match=message + r"/cifar10-train.parquet --rows 20000$"):
        reproduce("fedbs-figure-2", tmp_path / "out", changes=[f"data.root={tmp_path}"])
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_every_data_set_replaces_is_not_needed(tmp_path: Path) -> None:
    replaced = {"data.dataset": "digits", "data.test": 0.2}
    study = {"data": {"dataset": "file:none.parquet"}, "study": {"datasets": {"one": replaced}}}
    check_files(study)
    with pytest.raises(
        InputError, match=r"^data.dataset = 'file:none.parquet': .*none.parquet is missing; set data.root"
    ):
        check_files({**study, "study": {"datasets": {"one": replaced, "two": {}}}})


def test_downloads_are_named_with_their_sizes() -> None:
    assert downloads(read_reproduction("hierfavg-mnist").study(full=True)) == "mnist (12 MB)"
    assert downloads(read_reproduction("fedbn-quick").study(full=False)) == ""
    five = downloads(read_reproduction("fedbn-table-11").study(full=True))
    assert five == "mnist (12 MB), svhn (246 MB), usps (8 MB)"
