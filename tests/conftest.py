"""Settings and fixtures of all tests."""

from __future__ import annotations

import ctypes
import gc
import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

import hypothesis
import pytest

# As many as raysim itself computes with; and of several test processes on as many cores none waits for another.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# What Ray's workers import is compiled once then, and not by each of them.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

import raysim  # before any test imports ray: it switches off Ray's hook for `uv run`

if TYPE_CHECKING:
    from tests.kit.ray import SharedRay

sys.dont_write_bytecode = False

# No example fails because the machine is busy.
hypothesis.settings.register_profile("raysim", deadline=None)
hypothesis.settings.load_profile("raysim")


@pytest.fixture(scope="session")
def shared_ray() -> Iterator[SharedRay]:
    """The Ray of all tests of this process; a module whose tests start their own uses `own_ray`."""
    from tests.kit.ray import SharedRay  # late, because Ray takes a second to import

    shared = SharedRay()
    yield shared
    shared.end()


@pytest.fixture(scope="module")
def own_ray(shared_ray: SharedRay) -> None:
    """Leave the module without a running Ray."""
    shared_ray.end()


@pytest.fixture
def two_actors(shared_ray: SharedRay) -> raysim.Actors:
    """Two client actors, for `raysim.run(..., fleet=two_actors)`."""
    return shared_ray.actors(2)


@pytest.fixture(scope="module", autouse=True)
def freed() -> Iterator[None]:
    """Give the memory that a module's arrays took back to the system; the C library keeps it otherwise."""
    yield
    with suppress(OSError, AttributeError):  # only glibc has it
        ctypes.CDLL("libc.so.6").malloc_trim(0)


def pytest_sessionfinish() -> None:
    # Commands that ran in this process keep what they imported from the search for garbage; libraries then complain.
    gc.unfreeze()
