"""Resolved configuration of a run or a study on disk: TOML whose last line has a checksum of each key."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import tomli_w

from partitioning.common.disk import write_whole
from partitioning.common.paths import read_text
from partitioning.common.sealing import digest_of
from raysim.common.errors import InputError
from raysim.common.secrets import without_secrets
from raysim.config.topology import FILE

MARK = "# checksums "
"""Beginning of the line of checksums; a user's comments may stand behind it."""

DIGITS = 16
"""Hexadecimal digits of a checksum."""

FREE = {
    *("modules", "watch", "checkpoint", "data.root", "data.population", "model.weights", "algorithm.model.weights"),
    *(f"fleet.{key}" for key in ("actors", "gpus_per_actor", "copies", "group", "labels", "pinned")),
    "devices.table",
}
"""Keys that may be edited before a resume: they never change the result, or the files that they name are checked."""

PATHS = ("data.dataset", "data.root", "data.population", "data.test", "model.weights", "model.pretrained", "modules")
"""Keys that name files or folders and differ between the machines of a job; `topology.graph` may be another one."""


def write_config(path: Path, config: Mapping[str, Any]) -> None:
    """Write a resolved configuration with its checksums; a file that holds it stays, with the user's comments."""
    text = config_text(config)
    there: dict[str, Any] | None
    try:
        there = tomllib.loads(read_text(path))
        check_config(path, there)
    except (OSError, ValueError, InputError):
        there = None
    if there is None or there != tomllib.loads(text):
        with write_whole(path) as aside:
            aside.write_text(text, encoding="utf-8")


def config_text(config: Mapping[str, Any]) -> str:
    """Return a configuration as TOML with a line of checksums; passwords in URIs are masked."""
    text = tomli_w.dumps(without_secrets(config))
    return f"{text}\n{MARK}{json.dumps(_checksums(tomllib.loads(text)))}\n"


def check_config(path: Path, config: Mapping[str, Any]) -> None:
    """Check that a file's configuration is the one that raysim wrote, apart from the keys in `FREE`.

    Raises:
        InputError: a key differs; the first one is named.
    """
    lines = reversed(read_text(path).split("\n"))
    found = next((line.removeprefix(MARK) for line in lines if line.startswith(MARK)), "")
    try:
        there = json.loads(found) if found else None
    except (ValueError, RecursionError):
        there = None
    remedy = "must be as raysim wrote it, because the result depends on it; restore it, or start a new run"
    if not isinstance(there, dict):
        raise InputError(f"{path} has no line of checksums: {remedy}")
    here = _checksums(config)
    for key in {**there, **here}:
        if there.get(key) != here.get(key):
            raise InputError(f"{path}: {key} was changed: {remedy}")


def paths_of(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of the keys that name files or folders in a resolved configuration."""
    return {place: table[key] for place, table, key in _places(config)}


def _places(config: Mapping[str, Any]) -> Iterator[tuple[str, Any, str]]:
    """Yield the path of each key that names files or folders, its table, and its name there."""
    tables = {"": config, **{name: value for name, value in config.items() if isinstance(value, Mapping)}}
    for place in PATHS:
        name, _, key = place.rpartition(".")
        if key in tables.get(name, {}):
            yield place, tables[name], key
    for number, table in enumerate(config.get("algorithm", ())):
        if str(table.get("topology", {}).get("graph")).startswith(FILE):
            yield f"algorithm.{number}.topology.graph", table["topology"], "graph"


def restore_paths(path: Path, config: dict[str, Any], paths: Mapping[str, Any]) -> None:
    """Check a configuration that raysim wrote, and write it anew with another machine's paths, those of `paths_of`.

    Raises:
        InputError: a key differs from the one that raysim wrote.
    """
    check_config(path, config)
    for place, table, key in _places(config):
        if place in paths:
            table[key] = paths[place]
    write_config(path, config)


def _checksums(config: Mapping[str, Any]) -> dict[str, str]:
    """Return the checksum of each key at the top level."""
    fixed = _fixed(config, "")
    return {key: digest_of({key: value})[:DIGITS] for key, value in fixed.items()}


def _fixed(value: Any, path: str) -> Any:
    """Return a value without the keys in `FREE`."""
    if isinstance(value, list):
        return [_fixed(each, path) for each in value]
    if not isinstance(value, Mapping):
        return value if isinstance(value, str | int | float | bool) else str(value)
    paths = {key: f"{path}.{key}".lstrip(".") for key in value}
    return {key: _fixed(each, paths[key]) for key, each in value.items() if paths[key] not in FREE}
