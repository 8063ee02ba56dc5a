"""Files that the bundled reproductions read, and the commands that make them."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from partitioning.common.text import word
from raysim.common.errors import InputError
from raysim.config.check import flat, part
from raysim.data.catalogue import DATASETS, FILE

FASHION = "raysim export fashion-mnist {root}/fashion-mnist-train.parquet"
CIFAR10 = "raysim export cifar10 {root}/cifar10-train.parquet --rows 20000"
COVERTYPE = (
    "raysim export covertype {root}/covtype-20k.parquet --rows 20000, and reproduce with "
    "--set data.label=label --set data.without=[]"
)

COMMANDS: Mapping[str, str] = {
    "fashion-mnist-train.parquet": FASHION,
    "fashion-mnist-test.parquet": FASHION,
    "cifar10-train.parquet": CIFAR10,
    "cifar10-test.parquet": CIFAR10,
    "covtype-20k.parquet": COVERTYPE,
}
"""Commands by the name of a file; they download the data set's own files unless they are in the cache."""


def check_files(study: Mapping[str, Any]) -> None:
    """Check that the files that a study names are there, before its first trial.

    Args:
        study: tables of the study.

    Raises:
        InputError: a file is missing; the line has the command that makes it.
    """
    for name, own, keys in _settings(study):
        for key in ("data.dataset", "data.test"):
            _check_file(f"study.datasets.{name}.{key}" if key in own else key, keys.get(key), keys.get("data.root"))


def downloads(study: Mapping[str, Any]) -> str:
    """Return the data sets of a study that raysim downloads if their files are missing, with their sizes, as text."""
    names = {name.strip() for *_, keys in _settings(study) for name in str(keys.get("data.dataset")).split(",")}
    found = {name: size for name, data in DATASETS.items() if name in names and (size := data.download)}
    return ", ".join(f"{name} ({size})" for name, size in found.items())


def _settings(study: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any], Mapping[str, Any]]]:
    """Yield the name of each data set of a study, its own keys, and all its keys by their paths."""
    base = dict(flat({key: value for key, value in study.items() if key != "study"}))
    for name, own in (part(part(study, "study"), "datasets") or {"": {}}).items():
        yield name, own, base | dict(own)


def _check_file(path: str, value: Any, root: Any) -> None:
    if not (isinstance(value, str) and value.startswith(FILE)):
        return
    file = Path(str(root or "")) / Path(value.removeprefix(FILE)).expanduser()
    if not file.exists():
        command = COMMANDS.get(file.name, "").format(root=word(root or "."))
        remedy = f"make it by {command}" if command else "set data.root to the folder that has it"
        raise InputError(f"{path} = {value!r}: {file} is missing; {remedy}")
