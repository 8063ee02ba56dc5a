"""Summaries of algorithms: sealed JSON with the checksums of the files that they complete."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from partitioning.common.disk import write_whole
from partitioning.common.paths import read_bytes
from partitioning.common.sealing import SEAL, is_intact, sealed
from partitioning.store.files import sha256
from raysim.common.errors import InputError
from raysim.common.names import RESULTS

FILES, PLACE = "files", "place"
"""Keys of the files' SHA-256, and of the summary's own folder and name: a summary of another place is damage, too."""


def write_summary(path: Path, summary: Mapping[str, Any], further: Collection[str] = ()) -> None:
    """Write a summary of the files that are complete in its folder: `RESULTS`, and `further` ones."""
    names = (name for name in (*RESULTS, *further) if (path.parent / name).exists())
    files = {name: sha256(path.parent / name) for name in dict.fromkeys(names)}
    with write_whole(path) as aside:
        aside.write_bytes(sealed({**_plain(summary), FILES: files, PLACE: _place(path)}))


def read_summary(path: Path, used: Collection[str] | None = None) -> dict[str, Any]:
    """Return a summary, after a check of it and of the files in `used`, by default all.

    Raises:
        InputError: one of them is not as it was written.
    """
    remedy = f"must be as raysim wrote it; restore it, or remove {path.parent} and resume the run"
    try:
        record: dict[str, Any] = json.loads(read_bytes(path))
        if not isinstance(record, dict) or not is_intact(record):
            raise ValueError("its content was changed")
        if record.pop(PLACE, None) != _place(path):
            raise ValueError("it is another file's content")
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{path} is damaged ({error}): {remedy}") from None
    for name, digest in record.pop(FILES).items():
        if (used is None or name in used) and _digest(path.parent / name) != digest:
            raise InputError(f"{path.parent / name} is damaged (its sha256 is not that in {path.name}): {remedy}")
    del record[SEAL]
    return {key: _numbers(value) for key, value in record.items()}


def _place(path: Path) -> str:
    return "/".join(path.absolute().parts[-2:])


def _digest(path: Path) -> str | None:
    try:
        return sha256(path)
    except OSError:
        return None


def _plain(value: Any) -> Any:
    """Replace NaN and infinity, which JSON lacks, by "nan" and "inf", which `float` reads."""
    if isinstance(value, Mapping):
        return {name: _plain(each) for name, each in value.items()}
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _numbers(value: Any) -> Any:
    """Parse "nan" and "inf" back to floats."""
    if isinstance(value, dict):
        return {key: _numbers(each) for key, each in value.items()}
    return float(value) if value in ("nan", "inf", "-inf") else value
