"""The libraries of the Hugging Face hub: quiet, without code from a folder, and without files outside of it."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

from partitioning.common.paths import read_bytes
from raysim.common.errors import InputError

LONGEST = 300
"""Most characters of an error of a library in a message."""

NO_CODE: dict[str, Any] = {"trust_remote_code": False}
"""Argument of each loading function. By default the library asks on the terminal whether to run a folder's code."""

CARD = re.compile(r"\s*---\s*\n(.*?)\n---\s*(\n|$)", re.DOTALL)
"""Description of a data set at the top of its `README.md`."""

PATH_KEYS = ("data_files", "data_dir", "path")
"""Keys of a description whose values are paths."""


@contextmanager
def quiet_hub() -> Iterator[None]:
    """Silence the library's warnings of each of five retries."""
    log = logging.getLogger("huggingface_hub")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(level)


def reason_of(error: BaseException) -> str:
    """Return a library's error as a short line."""
    if "trust_remote_code" in str(error):
        return "it has code of its own, and raysim runs none from a folder or the hub"
    return " ".join(f"{type(error).__name__}: {error}".split())[:LONGEST]


def check_files(key: str, folder: Path) -> None:
    """Refuse a folder in which a library would wait at a pipe, or fill the memory from a device.

    Args:
        key: key that names the folder.
        folder: folder of files.

    Raises:
        InputError: the folder has something that is neither a file nor a folder.
    """
    for path in sorted(folder.rglob("*")):
        if path.exists() and not (path.is_file() or path.is_dir()):
            raise InputError(
                f"{key} = {str(folder)!r}: {path.name} is neither a file nor a folder: must be one; take it out"
            )


def check_model_folder(key: str, folder: Path) -> None:
    """Refuse a model's folder whose weights would be read from elsewhere.

    Args:
        key: key that names the folder.
        folder: folder of a model.

    Raises:
        InputError: an index names a file outside of the folder, the weights belong to another model, or the folder has
            something that is no file.
    """
    check_files(key, folder)
    for index in sorted(folder.glob("*.index.json")):
        for name in _strings(_parsed(json.loads, index).get("weight_map")):
            _check_inside(key, index, name)
    if (adapter := folder / "adapter_config.json").exists():
        raise InputError(
            f"{key} = {str(folder)!r} has {adapter.name}, an adapter of a model elsewhere: must have all weights; "
            "merge the adapter into its model, and save that"
        )


def check_data_folder(key: str, folder: Path) -> None:
    """Refuse a data set's folder whose description names files elsewhere.

    Args:
        key: key that names the folder.
        folder: folder in the layout of the hub.

    Raises:
        InputError: a path in `README.md` or `.huggingface.yaml` leaves the folder, or the folder has something that
            is no file.
    """
    check_files(key, folder)
    import yaml  # late: the library `datasets` brings it

    readme, other = folder / "README.md", folder / ".huggingface.yaml"
    if readme.is_file():
        for name in _paths(_parsed(lambda text: yaml.safe_load(_card(text)), readme)):
            _check_inside(key, readme, name)
    if other.is_file():
        for name in _paths(_parsed(yaml.safe_load, other)):
            _check_inside(key, other, name)


def _card(text: str) -> str:
    found = CARD.match(text)
    return found[1] if found else ""


def _parsed(parse: Any, file: Path) -> Any:
    """Return the mapping in a file; empty if there is none, because the library refuses such a file itself."""
    try:
        found = parse(read_bytes(file).decode("utf-8", errors="replace"))
    except Exception:  # a parser may raise anything
        return {}
    return found if isinstance(found, dict) else {}


def _paths(description: Any) -> Iterator[str]:
    """Yield the paths of a description, however deep they are."""
    waiting = [description]
    while waiting:
        item = waiting.pop()
        if isinstance(item, dict):
            for key, value in item.items():
                if key in PATH_KEYS:
                    yield from _strings(value)
                else:
                    waiting.append(value)
        elif isinstance(item, list):
            waiting.extend(item)


def _strings(value: Any) -> Iterator[str]:
    """Yield all texts in a value."""
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, str):
            yield item
        elif isinstance(item, dict | list):
            waiting.extend(item.values() if isinstance(item, dict) else item)


def _check_inside(key: str, file: Path, name: str) -> None:
    path = PurePosixPath(name.replace("\\", "/"))
    leaves = path.is_absolute() or ".." in path.parts or PureWindowsPath(name).drive or name.startswith("~")
    if leaves or "://" in name or "::" in name:
        raise InputError(
            f"{key} = {str(file.parent)!r}: {file.name} names {name[:LONGEST]!r}, which is not in the folder: must "
            "name files in it; take the folder from a source that you trust, or correct the file"
        )
