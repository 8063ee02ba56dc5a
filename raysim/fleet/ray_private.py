"""Private parts of Ray that raysim uses: the one place that asks for them.

Another version of Ray, older or newer, may lack one. raysim then goes Ray's public way and tells the user once what
that changes. Results never depend on these parts.
"""

from __future__ import annotations

import math
import os
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import ray


@dataclass(frozen=True)
class RayPart:
    """Private object of Ray.

    Args:
        path: module and name.
        without: consequence of its absence, a clause for the user.
    """

    path: str
    without: str

    @property
    def name(self) -> str:
        """Name in its module."""
        return self.path.rpartition(".")[2]

    def module(self) -> Any:
        """Return its module; None if this version of Ray lacks that."""
        try:
            return import_module(self.path.rpartition(".")[0])
        except ImportError:
            return None

    def find(self) -> Any:
        """Return the object; None if this version of Ray lacks it."""
        return getattr(self.module(), self.name, None)


CLUSTER_SWITCH = RayPart(
    "ray._private.ray_constants.ENABLE_RAY_CLUSTER", "Ray listens on all of this machine's addresses"
)
NODE = RayPart("ray._private.node.Node", "Ray also starts its dashboard and monitors, which takes seconds")
TOKENS = RayPart("ray._raylet.AuthenticationTokenLoader", "Ray uses the user's token, or none")
TOKEN_SETTINGS = RayPart("ray._raylet.Config", "this process keeps the token of its first Ray")
CONTROL_STORE = RayPart("ray._raylet.GcsClient", "a wrong address is noticed only after minutes")
WORKER = RayPart("ray._private.worker.global_worker", "errors do not quote an actor's last output")

DRAWING = ("ray._raylet", "ray._private.node", "ray._private.external_storage")
"""Modules of Ray that draw ids and ports from Python's `random`. A version that lacks one draws nothing there."""

START = (CLUSTER_SWITCH, NODE, TOKENS, TOKEN_SETTINGS, CONTROL_STORE, WORKER)
"""Parts that client actors need."""

_PACKAGING = "ray._private.runtime_env.packaging"
TRAVEL = RayPart(f"{_PACKAGING}._dir_travel", "Ray alone checks the size of a job's folder")
EXCLUDES = RayPart(f"{_PACKAGING}._get_excludes", TRAVEL.without)
STORE_LIMIT = RayPart(f"{_PACKAGING}.GCS_STORAGE_MAX_SIZE", TRAVEL.without)
CLIENT_LIMIT = RayPart("ray._private.ray_constants.DASHBOARD_CLIENT_MAX_SIZE", TRAVEL.without)

PACKAGING = (TRAVEL, EXCLUDES, STORE_LIMIT, CLIENT_LIMIT)
"""Parts that jobs need."""

ZIP_ENTRY = 76
"""Bytes of a file's entry in Ray's zip archive, beside its content and twice its name."""

_told: set[str] = set()


def draw_apart() -> None:
    """Give Ray a generator of its own: it starts in a thread beside a user's code, whose draws are keyed."""
    for part in (RayPart(f"{name}.random", "") for name in DRAWING):
        if part.find() is random:
            setattr(part.module(), part.name, random.Random())


def untold(parts: tuple[RayPart, ...]) -> str:
    """Return the notice about parts that this version of Ray lacks; "" if none is missing, or the user knows."""
    missing = [part for part in parts if part.path not in _told and part.find() is None]
    _told.update(part.path for part in missing)
    if not missing:
        return ""
    names, changes = ", ".join(part.path for part in missing), dict.fromkeys(part.without for part in missing)
    return (
        f"Ray {ray.__version__} lacks {names}: {'; '.join(changes)}; results are the same; `uv sync` in the folder of "
        "raysim installs the tested version"
    )


def sent_sizes(folder: Path, unwanted: Sequence[str]) -> Counter[str]:
    """Return the bytes that Ray would send of each entry of a folder, without the unwanted patterns."""
    sizes: Counter[str] = Counter()

    def count(path: Path) -> None:
        if path.is_file():
            place = path.relative_to(folder)
            sizes[place.parts[0]] += path.stat().st_size + ZIP_ENTRY + 2 * len(os.fsencode(place))

    travel, excludes = TRAVEL.find(), EXCLUDES.find()
    if travel and excludes:
        heeds = os.environ.get("RAY_RUNTIME_ENV_IGNORE_GITIGNORE", "0") != "1"
        travel(folder, [excludes(folder, list(unwanted))], count, include_gitignore=heeds)
    else:
        for path in folder.rglob("*"):
            count(path)
    return sizes


def sent_limit() -> float:
    """Return the bytes that Ray's job server accepts for a folder; infinity if only Ray itself can count them."""
    found = [part.find() for part in PACKAGING]
    return math.inf if None in found else min(STORE_LIMIT.find(), CLIENT_LIMIT.find())
