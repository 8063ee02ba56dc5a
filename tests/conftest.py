"""Settings of all tests."""

import gc
import os
import sys

# As many as raysim itself computes with; and of several test processes on as many cores none waits for another.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# A node has 30 seconds to start else, which is too little beside other tests.
os.environ.setdefault("RAY_raylet_start_wait_time_s", "120")

# What Ray's workers import is compiled once then, and not by each of them.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

import raysim  # noqa: F401  before any test imports ray: it switches off Ray's hook for `uv run`

sys.dont_write_bytecode = False


def pytest_sessionfinish() -> None:
    # Commands that ran in this process keep what they imported from the search for garbage; libraries then complain.
    gc.unfreeze()
