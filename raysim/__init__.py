"""raysim: federated learning, simulated, with a result that is the same to the last bit on any fleet."""

import os

# An ancestor `uv run` makes Ray rebuild the environment for every worker and upload the working directory.
# It is read when ray is imported, so it stands before anything that does.
os.environ["RAY_ENABLE_UV_RUN_RUNTIME_ENV"] = "0"

from raysim.common.errors import InputError

__all__ = ["InputError", "Run", "StudyProgress", "resume", "run", "study"]


def __getattr__(name: str) -> object:
    # torch takes seconds to import, and `raysim --help` needs none of it.
    if name in ("run", "resume", "Run"):
        from raysim.simulation import api

        return getattr(api, name)
    if name in ("study", "StudyProgress"):
        from raysim.studies import studying

        return getattr(studying, name)
    raise AttributeError(f"module 'raysim' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*globals(), "Run", "StudyProgress", "resume", "run", "study"]
