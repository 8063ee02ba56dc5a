"""The libraries of the Hugging Face hub: quiet, without code from a folder, and without files outside of it."""

import json
import logging
import os
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

from partitioning.common.paths import read_bytes
from raysim.common.errors import InputError

LONGEST = 300
"""Most characters of an error of a library in a message."""

NO_CODE: dict[str, Any] = {"trust_remote_code": False}
"""Argument of each loading function. By default the library asks on the terminal whether to run a folder's code."""

LOCAL = ("file:", "local:")
"""Prefixes that the library's file system removes from a local path."""

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
    """Refuse a folder in which a library would read another place, wait at a pipe, or fill the memory from a device.

    Args:
        key: key that names the folder.
        folder: folder of files.

    Raises:
        InputError: the folder has a link to elsewhere, or something that is neither a file nor a folder.
    """
    for path in sorted(folder.rglob("*")):
        if path.is_symlink() and not is_inside(path, *own_places(folder)):
            raise InputError(
                f"{key} = {str(folder)!r}: {path.name} is a link to {os.path.realpath(path)[:LONGEST]!r}, which is "
                "not in the folder: must be a file in it; copy the file if you trust the link"
            )
        if path.exists() and not (path.is_file() or path.is_dir()):
            raise InputError(
                f"{key} = {str(folder)!r}: {path.name} is neither a file nor a folder: must be one; take it out"
            )


def is_inside(path: str | Path, *folders: Path) -> bool:
    """Return whether a path lies in one of some folders after all its links and `..` are followed; a URL never does."""
    name = os.fspath(path)
    if name.startswith(LOCAL) or "://" in name or "::" in name:
        return False
    place = Path(os.path.realpath(path))
    return any(place.is_relative_to(os.path.realpath(folder)) for folder in folders)


def own_places(folder: Path) -> list[Path]:
    """Return the places of a folder's files: itself and, for a snapshot in the hub's cache, the blobs beside it."""
    is_snapshot = folder.parent.name == "snapshots"
    return [folder, folder.parent.parent / "blobs"] if is_snapshot else [folder]


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
    indexes = [(index, "weight_map") for index in sorted(folder.rglob("*.index.json"))]
    for file, names in (*indexes, (folder / "config.json", "transformers_weights")):
        for name in _texts(_parsed(json.loads, file).get(names)):
            _check_inside(key, file, name)
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
    from huggingface_hub.repocard import REGEX_YAML_BLOCK

    def card(text: str) -> Any:
        found = REGEX_YAML_BLOCK.search(text)
        return yaml.safe_load(found[2]) if found else None

    for name, parse in (("README.md", card), (".huggingface.yaml", yaml.safe_load)):
        for path in _texts(_parsed(parse, folder / name), PATH_KEYS):
            _check_inside(key, folder / name, path)


def _parsed(parse: Any, file: Path) -> Any:
    """Return the mapping in a file; empty without one, or without the file: the library itself refuses a wrong file."""
    try:
        found = parse(read_bytes(file).decode("utf-8-sig", errors="replace"))
    except Exception:  # a parser may raise anything
        return {}
    return found if isinstance(found, dict) else {}


def _texts(value: Any, below: Collection[str] | None = None) -> Iterator[str]:
    """Yield the texts in a value, however deep they are; with `below`, only those under one of these keys."""
    waiting, seen = [(value, below is None)], set[tuple[int, bool]]()
    while waiting:
        item, is_wanted = waiting.pop()
        if isinstance(item, str) and is_wanted:
            yield item
        elif isinstance(item, dict | list) and (id(item), is_wanted) not in seen:
            seen.add((id(item), is_wanted))  # by an alias of YAML, it may stand in many places, and in itself
            if isinstance(item, dict):
                waiting += [(inner, is_wanted or key in (below or ())) for key, inner in item.items()]
            else:
                waiting += [(inner, is_wanted) for inner in item]


def _check_inside(key: str, file: Path, name: str) -> None:
    plain = name.strip().replace("\\", "/")
    while plain.startswith(LOCAL):
        plain = plain.partition(":")[2]
    path = PurePosixPath(plain)
    leaves = path.is_absolute() or ".." in path.parts or PureWindowsPath(plain).drive or plain.startswith("~")
    if leaves or "://" in plain or "::" in plain:
        raise InputError(
            f"{key} = {str(file.parent)!r}: {file.name} names {name[:LONGEST]!r}, which is not in the folder: must "
            "name files in it; take the folder from a source that you trust, or correct the file"
        )
