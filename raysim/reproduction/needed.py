"""Files that the bundled reproductions read, and the commands that make them."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from partitioning.common.text import word
from raysim.common.errors import InputError
from raysim.config.data import DataTable
from raysim.data.catalogue import DATASETS, SHIFTED
from raysim.studies.file import Study, completed
from raysim.studies.populations import data_files

FASHION = "raysim export fashion-mnist {root}/fashion-mnist-train.parquet"
CIFAR10 = "raysim export cifar10 {root}/cifar10-train.parquet --rows 20000"
COVERTYPE = (
    "raysim export covertype {root}/covtype-20k.parquet --rows 20000, and reproduce with "
    "--set data.label=label --set 'data.without=[]'"
)

COMMANDS: Mapping[str, str] = {
    "fashion-mnist-train.parquet": FASHION,
    "fashion-mnist-test.parquet": FASHION,
    "cifar10-train.parquet": CIFAR10,
    "cifar10-test.parquet": CIFAR10,
    "covtype-20k.parquet": COVERTYPE,
}
"""Commands by the name of a file; they download the data set's own files unless they are in the cache."""


def check_data(study: Mapping[str, Any], notice: Callable[[str], object]) -> None:
    """Check a study's files, see `check_files`, and give notice of the downloads."""
    check_files(study)
    if found := downloads(study):
        notice(f"needs {found}; raysim downloads what is missing")


def check_files(study: Mapping[str, Any]) -> None:
    """Check that the files that a study names are there, before its first trial.

    Args:
        study: tables of the study.

    Raises:
        InputError: a file is missing, and the line has the command that makes it; or the study is wrong.
    """
    for data in _data(study):
        for key, value, file in data_files(data):
            if not file.exists():
                raise InputError(f"{key} = {value!r}: {file} is missing; {_remedy(file)}")


def downloads(study: Mapping[str, Any]) -> str:
    """Return the data sets of a study that raysim downloads if their files are missing, with their sizes, as text."""
    named = ",".join(str(value) for data in _data(study) for value in (data.dataset, data.test))
    names = {name.strip().removeprefix(SHIFTED) for name in named.split(",")}
    found = {name: size for name, data in DATASETS.items() if name in names and (size := data.download)}
    return ", ".join(f"{name} ({size})" for name, size in found.items())


def _data(study: Mapping[str, Any]) -> Iterator[DataTable]:
    """Yield the table `[data]` of each data set of a study, unless its clients exist already."""
    tables = (each.experiment.data for each in Study.of(completed(study)).datasets)
    yield from (data for data in tables if not data.population)


def _remedy(file: Path) -> str:
    if file.name not in COMMANDS:
        return "set data.root to the folder that has it"
    template, folder = COMMANDS[file.name], file.parent
    made = [folder / name for name, other in COMMANDS.items() if other == template and (folder / name).exists()]
    first = f"remove {made[0]}, and " if made else ""
    return f"{first}make it by {template.format(root=word(folder))}"
