"""Distribution of the tests to the workers of pytest: all with Ray to one, the others module by module."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from xdist.scheduler import LoadScopeScheduling

OWN_RAY = ("own_ray",)
RAY = (*OWN_RAY, "shared_ray", "two_actors")
"""Fixtures whose name a module that uses Ray contains."""


def module_of(nodeid: str) -> str:
    """Return the path of a test's module, relative to the root."""
    return nodeid.partition("::")[0]


@cache
def uses(module: str, fixtures: tuple[str, ...]) -> bool:
    """Return whether a module contains the name of one of the fixtures.

    The text decides, because the process that hands the modules out collects no tests.
    """
    text = (Path(__file__).parents[2] / module).read_text(encoding="utf-8")
    return any(name in text for name in fixtures)


class RayTogether(LoadScopeScheduling):  # type: ignore[misc]
    """Scheduler that keeps a module's tests together, which share what their fixtures ran; and all with Ray."""

    def _split_scope(self, nodeid: str) -> str:
        module = module_of(nodeid)
        return "ray" if uses(module, RAY) else module
