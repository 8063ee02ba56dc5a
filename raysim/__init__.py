"""raysim simulates federated learning; the result is the same to the last bit on any fleet."""

import os
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

# Under `uv run`, Ray would rebuild the environment for every worker and upload the working directory.
# Ray reads the variable when it is imported, so it is set before any other import.
os.environ["RAY_ENABLE_UV_RUN_RUNTIME_ENV"] = "0"


# A job of Ray's keeps each package in a folder of its own, so a file that only ours has tells them apart.
_PACKAGES = {"algorithms": "parts/client_update.py", "partitioning": "schemes/dirichlet_qp.py"}


def _refuse_namesakes() -> None:
    """Refuse a folder or file of the user's that Python finds in the place of raysim's other packages."""
    for name, landmark in _PACKAGES.items():
        spec = find_spec(name)
        places = (spec.submodule_search_locations or [spec.origin or name]) if spec else [name]
        place = next(iter(places))
        if Path(place, landmark).is_file():
            continue
        text = (
            f"{place} hides raysim's own package {name!r}: must have another name; rename it, or start Python in "
            "another folder"
        )
        if sys.argv[:1] == ["-m"]:  # `python -m raysim` imports this file before the program begins
            sys.stderr.write(f"raysim: {text}\n")
            raise SystemExit(2)
        raise ImportError(text)


_refuse_namesakes()

from raysim.common.errors import (  # noqa: E402  a namesake would break this import
    DamagedError,
    DivergedError,
    InputError,
    OutOfMemoryError,
    OwnCodeError,
    RayStartError,
    RetriesSpentError,
    StoppedError,
)

__all__ = [
    "Actors",
    "DamagedError",
    "DivergedError",
    "InputError",
    "OutOfMemoryError",
    "OwnCodeError",
    "RayStartError",
    "RetriesSpentError",
    "Run",
    "StoppedError",
    "StudyProgress",
    "load",
    "resume",
    "run",
    "study",
]

# torch takes seconds to import, and `raysim --help` needs none of it.
_MODULES = {
    **dict.fromkeys(("run", "resume"), "raysim.simulation.api"),
    "Actors": "raysim.fleet.actors",
    **dict.fromkeys(("load", "Run"), "raysim.simulation.finished"),
    **dict.fromkeys(("study", "StudyProgress"), "raysim.studies.studying"),
}


def __getattr__(name: str) -> object:
    if name == "Fleet":
        raise AttributeError("raysim.Fleet has another name: use raysim.Actors")
    if name not in _MODULES:
        raise AttributeError(f"module 'raysim' has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return [*globals(), *_MODULES]
