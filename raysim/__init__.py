"""raysim simulates federated learning; the result is the same to the last bit on any fleet."""

import os
from importlib import import_module

# Under `uv run`, Ray would rebuild the environment for every worker and upload the working directory.
# Ray reads the variable when it is imported, so it is set before any other import.
os.environ["RAY_ENABLE_UV_RUN_RUNTIME_ENV"] = "0"

from raysim.common.errors import InputError

__all__ = ["InputError", "Run", "StudyProgress", "resume", "run", "study"]

# torch takes seconds to import, and `raysim --help` needs none of it.
_MODULES = {
    **dict.fromkeys(("run", "resume", "Run"), "raysim.simulation.api"),
    **dict.fromkeys(("study", "StudyProgress"), "raysim.studies.studying"),
}


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module 'raysim' has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return [*globals(), *_MODULES]
