"""Settings and fixtures of all tests."""

from __future__ import annotations

import atexit
import gc
import os
import sys
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Any

import hypothesis
import pytest

# As many as raysim itself computes with; and of several test processes on as many cores none waits for another.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# What Ray's workers import is compiled once then, and not by each of them.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

import raysim  # before any test imports ray: it switches off Ray's hook for `uv run`
from tests.kit.drawing import DRAW, empty_svg, writing_svg
from tests.kit.memory import Memory
from tests.kit.workers import OWN_RAY, RAY, RayTogether, module_of, users, uses

if TYPE_CHECKING:
    from tests.kit.ray import SharedRay

sys.dont_write_bytecode = False

# No example fails because the machine is busy.
hypothesis.settings.register_profile("raysim", deadline=None)
hypothesis.settings.load_profile("raysim")
MEMORY = Memory()


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


@pytest.fixture(scope="session", autouse=True)
def undrawn() -> Iterator[None]:
    """Have matplotlib write empty pictures, because drawing takes most of a report's time."""
    with writing_svg(empty_svg):
        yield


@pytest.fixture(scope="module")
def drawn(undrawn: None) -> Iterator[None]:
    """Have matplotlib draw in this module from here on, for tests that look at pictures."""
    with writing_svg(DRAW):
        yield


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect the tests without a search for garbage: they make a million objects and hardly any garbage."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_finish() -> None:
    MEMORY.give_back()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol() -> Generator[None, object, object]:
    """Give memory back after a test whose fixtures are gone too."""
    result = yield
    MEMORY.look()
    return result


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the modules with a Ray of their own first, then those that share one, and the largest of the others next."""
    modules: dict[str, list[pytest.Item]] = {}
    for item in items:
        modules.setdefault(module_of(item.nodeid), []).append(item)
        has_ray = isinstance(item, pytest.Function) and not RAY.isdisjoint(item.fixturenames)
        assert has_ray == uses(item.nodeid, RAY), f"{item.nodeid}: tests/kit/workers.py must see that it uses Ray"
    items[:] = [item for module in sorted(modules.values(), key=_turn) for item in module]


def _turn(module: list[pytest.Item]) -> tuple[bool, bool, int]:
    name = module_of(module[0].nodeid)
    return not users(name, OWN_RAY), not users(name, RAY), -len(module)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int | None:
    """Start a worker for each core of this process, also if two of them are threads of one."""
    if "PYTEST_XDIST_AUTO_NUM_WORKERS" in os.environ:
        return None  # xdist's own hook reads it
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Give one worker all modules with Ray, so that Ray starts in one place while the others compute."""
    return RayTogether(config, log)


def pytest_sessionfinish() -> None:
    MEMORY.give_back()  # pytest searches for garbage five times now, and this keeps a million objects out of it
    # Libraries complain of what is left when Python ends, and what is kept out of the search is left.
    atexit.register(gc.unfreeze)
