"""`python -m tests.mutants.server` in a copy of the tree: run tests in forks of a process that has imported libraries.

A request is a line of JSON on the standard input, and so is its answer on the standard output.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import resource
import signal
import sys
import time
import traceback
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import Any

import pytest

PRELOADED = (
    *("cvxpy", "hypothesis", "matplotlib.pyplot", "numpy", "PIL.Image", "polars", "pyarrow.dataset", "pyarrow.parquet"),
    *("pydantic", "rich.progress", "safetensors.torch", "scipy.stats", "sklearn.datasets", "sklearn.metrics"),
    *("torch", "torch.func", "torchvision.datasets", "click.testing", "ray"),
)
"""Libraries that take long to import; never one of the packages."""

MEMORY = 10 * 2**30
"""Bytes that a process may take, so that an endless loop does not fill the machine."""

START_SECONDS = 300
"""Time for imports and collection."""


class Selection:
    """Plugin that keeps the wanted tests, in their order, and ends the process if a test takes too long.

    Args:
        tests: seconds by name of the test.
        said: file for started and failed tests.
    """

    def __init__(self, tests: Mapping[str, float], said: Path) -> None:
        self.tests, self.said = tests, said

    def say(self, **values: str) -> None:
        with self.said.open("a") as file:
            file.write(json.dumps(values) + "\n")

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Keep a module's tests together, because a change of the module tears its fixtures down."""
        order = {name: place for place, name in enumerate(self.tests)}
        first: dict[str, int] = {}
        for name, place in order.items():
            first.setdefault(module(name), place)
        items[:] = [item for item in items if item.nodeid in order]
        items.sort(key=lambda item: (first[module(item.nodeid)], order[item.nodeid]))

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, Any, Any]:
        self.say(started=item.nodeid)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(30 + int(10 * self.tests[item.nodeid]))
        try:
            return (yield)
        finally:
            signal.alarm(START_SECONDS)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.say(failed=report.nodeid, error=report.longreprtext.strip()[-300:])

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.say(failed=report.nodeid, error=report.longreprtext.strip()[-300:])


def module(test: str) -> str:
    return test.partition("::")[0]


def child(tests: Mapping[str, float], said: Path, stop: bool) -> int:
    """Run tests in this process; return the status of pytest."""
    os.setsid()
    signal.alarm(START_SECONDS)
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    output = os.open(said.with_suffix(".log"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for number in 1, 2:
        os.dup2(output, number)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    # Pytest rewrites assertions of its plugins, and one of them is imported already.
    warning = "ignore:Module already imported:pytest.PytestAssertRewriteWarning"
    options = [
        "-W",
        warning,
        "-q",
        "--tb=short",
        "--no-header",
        "-p",
        "no:cacheprovider",
        f"--basetemp={said.with_suffix('.tmp')}",
    ]
    files = list(dict.fromkeys(module(test) for test in tests))
    return int(pytest.main([*options, *(["-x"] if stop else []), *files], plugins=[Selection(tests, said)]))


def answer(tests: Mapping[str, float], said: Path, stop: bool) -> dict[str, Any]:
    """Run tests in a fork; return the outcome and the failed tests."""
    said.unlink(missing_ok=True)
    began = time.perf_counter()
    if not (pid := os.fork()):
        status = 3
        try:
            status = child(tests, said, stop)
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            os._exit(status)
    status = os.waitpid(pid, 0)[1]
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
    lines = [json.loads(line) for line in said.read_text().splitlines()] if said.exists() else []
    started = next((line["started"] for line in reversed(lines) if "started" in line), "import")
    failed = {line["failed"]: line["error"] for line in lines if "failed" in line}
    if os.WIFSIGNALED(status):
        name = signal.Signals(os.WTERMSIG(status)).name
        outcome = "timed out" if name == "SIGALRM" else "caught"
        failed = {started: name}
    else:
        code = os.WEXITSTATUS(status)
        if code in (pytest.ExitCode.INTERNAL_ERROR, pytest.ExitCode.NO_TESTS_COLLECTED):
            raise RuntimeError(f"status {code}: {said.with_suffix('.log').read_text()[-2000:]}")
        outcome = "caught" if code else "survived"
        failed = failed or ({"import": f"status {code}"} if code else {})
    return {"outcome": outcome, "failed": failed, "seconds": round(time.perf_counter() - began, 1)}


def main() -> None:
    """Answer requests until the input ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for name in PRELOADED:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    gc.freeze()
    for line in sys.stdin:
        request = json.loads(line)
        answers.write(json.dumps(answer(request["tests"], Path(request["said"]), request["stop"])) + "\n")
        answers.flush()
    os._exit(0)  # a library prints its leaks otherwise


if __name__ == "__main__":
    main()
