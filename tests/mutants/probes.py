"""Pytest plugin that writes for every passed test its lines in the packages and its duration.

Every statement of a function begins with a probe, `__reached__[number] = 1`: the number is the line plus the file's
offset. The probes are in memory alone, so processes that a test starts import the files as they are.
"""

from __future__ import annotations

import ast
import builtins
import json
import os
import sys
import time
import zlib
from base64 import b64encode
from collections import defaultdict
from collections.abc import Generator, Iterable
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType
from typing import Any

import pytest

PACKAGES = ("algorithms", "partitioning", "raysim")
FOLDER = "MUTANTS_REACH"
"""Environment variable with the folder for the records; a process without it has no probes."""


def offsets(root: Path) -> tuple[dict[str, int], int]:
    """Return the offset of every file of the packages, and the number of lines of all."""
    found, total = {}, 0
    for path in sorted(path for package in PACKAGES for path in (root / package).rglob("*.py")):
        found[str(path.relative_to(root))] = total
        total += path.read_bytes().count(b"\n") + 2
    return found, total


def probed(source: bytes, path: str, offset: int) -> CodeType:
    """Compile a file with a probe before every statement of its functions."""
    tree = ast.parse(source, path)
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    for node in {id(inner): inner for function in functions for inner in ast.walk(function)}.values():
        for name in ("body", "orelse", "finalbody"):
            statements = getattr(node, name, None)
            if isinstance(statements, list):
                setattr(node, name, list(with_probes(statements, offset)))
    return compile(tree, path, "exec", dont_inherit=True)


def with_probes(statements: Iterable[ast.stmt], offset: int) -> Iterable[ast.stmt]:
    """Yield statements, and a probe before each but a docstring."""
    for statement in statements:
        if not (isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)):
            (probe,) = ast.parse(f"__reached__[{offset + statement.lineno}] = 1").body
            for node in ast.walk(probe):
                ast.copy_location(node, statement)
            yield probe
        yield statement


class ProbingLoader(SourceFileLoader):
    """Loader of files with probes; it reads and writes no byte code.

    Args:
        offset: see `offsets`.
    """

    def __init__(self, name: str, path: str, offset: int) -> None:
        super().__init__(name, path)
        self.offset = offset

    def get_code(self, fullname: str) -> CodeType:
        return probed(Path(self.path).read_bytes(), self.path, self.offset)


class ProbingFinder(MetaPathFinder):
    """Finder of the packages' files.

    Args:
        root: folder of the packages.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.offsets, total = offsets(root)
        self.reached = bytearray(total)
        builtins.__dict__["__reached__"] = self.reached

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if fullname.partition(".")[0] not in PACKAGES:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec and spec.origin and Path(spec.origin).is_relative_to(self.root) and spec.origin.endswith(".py"):
            offset = self.offsets[str(Path(spec.origin).relative_to(self.root))]
            spec.loader = ProbingLoader(fullname, spec.origin, offset)
        return spec


class Recorder:
    """Lines and durations of the tests of one process.

    Args:
        file: its lines are the records.
        reached: whether each line of all files has run.
    """

    def __init__(self, file: Path, reached: bytearray) -> None:
        self.file, self.reached, self.none = file, reached, bytes(len(reached))
        self.failed = False
        self.fixtures: dict[Any, tuple[int, float]] = defaultdict(lambda: (0, 0.0))
        self.apart = 0.0

    def taken(self) -> int:
        """Return the reached lines as the bytes of a number, and forget them."""
        lines = int.from_bytes(self.reached, "big")
        self.reached[:] = self.none
        return lines

    def write(self, test: str | None, lines: int, seconds: float, shared: float) -> None:
        packed = b64encode(zlib.compress(lines.to_bytes(len(self.none), "big"))).decode()
        with self.file.open("a") as file:
            record = {"test": test, "seconds": round(seconds, 4), "shared": round(shared, 4), "lines": packed}
            file.write(json.dumps(record) + "\n")

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Write what ran while the tests were imported, under no name."""
        self.write(None, self.taken(), 0, 0)

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any, request: Any) -> Generator[None, Any, Any]:
        """Set apart the lines and seconds of a fixture that tests share."""
        if fixturedef.scope == "function":
            return (yield)
        before, began, apart = self.taken(), time.perf_counter(), self.apart
        try:
            return (yield)
        finally:
            seconds = time.perf_counter() - began - (self.apart - apart)
            lines, earlier = self.fixtures[fixturedef]
            self.fixtures[fixturedef] = (lines | self.taken(), earlier + seconds)
            self.apart += seconds
            self.reached[:] = before.to_bytes(len(self.none), "big")

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: Any) -> Generator[None, Any, Any]:
        self.taken()
        self.failed, self.apart, began = False, 0.0, time.perf_counter()
        result = yield
        seconds, lines, shared = time.perf_counter() - began - self.apart, self.taken(), 0.0
        info = getattr(item, "_fixtureinfo", None)
        for definition in {one for some in info.name2fixturedefs.values() for one in some} if info else ():
            if definition in self.fixtures:
                lines |= self.fixtures[definition][0]
                shared += self.fixtures[definition][1]
        if not self.failed:
            self.write(item.nodeid, lines, seconds, shared)
        return result

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.failed |= not report.passed


def pytest_configure(config: pytest.Config) -> None:
    for finder in (finder for finder in sys.meta_path if isinstance(finder, ProbingFinder)):
        file = Path(os.environ[FOLDER]) / f"{os.getpid()}.jsonl"
        config.pluginmanager.register(Recorder(file, finder.reached), "recorder")


# The plugin is imported before any `conftest.py`, which may import the packages.
if FOLDER in os.environ:
    sys.meta_path.insert(0, ProbingFinder(Path.cwd()))
