"""Map of the tests that reach each line, made once and kept in a folder."""

from __future__ import annotations

import ast
import base64
import json
import math
import os
import subprocess
import sys
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.mutants.copies import copied, environment
from tests.mutants.probes import FOLDER, PACKAGES, offsets


@dataclass(frozen=True)
class Reach:
    """Lines that each test reaches.

    Args:
        offsets: place of each file's line 0 among all lines.
        tests: names of the tests.
        seconds: duration of each test.
        shared: duration of the fixtures that it shares with others.
        lines: bit of each line, [tests, lines / 8].
        imported: bits of the lines that ran while tests were imported.
        importers: files that import each file, itself included.
    """

    offsets: dict[str, int]
    tests: tuple[str, ...]
    seconds: NDArray[np.float64]
    shared: NDArray[np.float64]
    lines: NDArray[np.uint8]
    imported: NDArray[np.uint8]
    importers: dict[str, list[str]]

    def of_file(self, file: str) -> NDArray[np.bool_]:
        """Return whether each test reaches a function of a file."""
        begin = self.offsets[file]
        end = min([place for place in self.offsets.values() if place > begin], default=self.lines.shape[1] * 8)
        bits = np.unpackbits(self.lines[:, begin // 8 : end // 8 + 1], axis=1)
        return np.asarray(bits[:, begin % 8 : begin % 8 + end - begin].any(axis=1))

    def tests_of(self, file: str, line: int) -> list[int]:
        """Return the tests that reach a line, the likeliest first.

        Args:
            file: path in the tree.
            line: first line of a statement in a function, or 0 for a line that runs at import.
        """
        place = self.offsets[file] + line
        bit = 0x80 >> place % 8
        reached = (self.lines[:, place // 8] & bit) > 0
        if line == 0 or self.imported[place // 8] & bit:
            own = self.of_file(file)
            reached = np.logical_or.reduce([self.of_file(name) for name in self.importers[file]])
        else:
            own = reached
        name = f"test_{Path(file).stem}.py"
        mirrored = [Path(test.partition("::")[0]).name == name for test in self.tests]
        found = [int(test) for test in np.flatnonzero(reached)]
        return sorted(found, key=lambda test: (not mirrored[test], not own[test], self.seconds[test]))

    def chosen(self, file: str, line: int, budget: float) -> tuple[dict[str, float], int]:
        """Return tests of a line within seconds, with the seconds of each, and the number of the others."""
        found: dict[str, float] = {}
        modules: set[str] = set()
        spent, tests = 0.0, self.tests_of(file, line)
        # One long test may not take the place of many others.
        for longest in (budget / 2, math.inf):
            for test in [] if found else tests:
                module = self.tests[test].partition("::")[0]
                # A module costs its shared fixtures, and some tenths of a second to import it.
                own, first = float(self.seconds[test]), 0.2 + float(self.shared[test])
                whole = own + (0.0 if module in modules else first)
                if whole <= longest and (not found or spent + whole <= budget):
                    modules.add(module)
                    spent += whole
                    found[self.tests[test]] = own + first
        return found, len(tests) - len(found)


def importers(root: Path) -> dict[str, list[str]]:
    """Return the files of the packages that import each file, itself first."""
    files = list(offsets(root)[0])
    found = {file: [file] for file in files}
    for file in files:
        for node in ast.walk(ast.parse((root / file).read_bytes())):
            if isinstance(node, ast.ImportFrom) and node.module:
                stem = node.module.replace(".", "/")
                names = [f"{stem}.py", *(f"{stem}/{alias.name}.py" for alias in node.names)]
                for name in names:
                    if name in found and file not in found[name]:
                        found[name].append(file)
    return found


def digests(root: Path) -> dict[str, str]:
    """Return the hash of every test file; "packages" covers the packages and the code that tests share."""
    names = sorted(root.glob("tests/**/test_*.py"))
    found = {str(path.relative_to(root)): sha256(path.read_bytes()).hexdigest() for path in names}
    shared = [*root.glob("tests/kit/**/*.py"), *root.glob("tests/**/conftest.py")]
    packages = sorted([*shared, *(path for package in PACKAGES for path in (root / package).rglob("*.py"))])
    text = "".join(f"{path.relative_to(root)} {sha256(path.read_bytes()).hexdigest()}\n" for path in packages)
    return {**found, "packages": sha256(text.encode()).hexdigest()}


def records(folder: Path) -> Iterator[dict[str, Any]]:
    for path in sorted(folder.glob("*.jsonl")):
        with path.open() as file:
            yield from (json.loads(line) for line in file)


def update(tree: Path, cache: Path, processes: int) -> Reach:
    """Return the map of a tree; run the tests of changed test files, or all if "packages" changed."""
    copy = copied(tree, cache / "map")
    now, header, file = digests(copy), cache / "reach.json", cache / "reach.jsonl"
    before = json.loads(header.read_text()) if header.exists() else {}
    if before.get("packages") != now["packages"]:
        before = {}
        file.unlink(missing_ok=True)
    changed = [name for name, digest in now.items() if before.get(name) != digest and name != "packages"]
    if changed:
        kept = [line for line in records(cache) if line["test"] and line["test"].partition("::")[0] not in changed]
        kept = [line for line in kept if line["test"].partition("::")[0] in now]
        imported = [line for line in records(cache) if not line["test"]]
        new = run(copy, cache, changed if before else [], processes)
        with file.with_suffix(".new").open("w") as output:
            output.writelines(json.dumps(line) + "\n" for line in [*kept, *imported, *new])
        file.with_suffix(".new").rename(file)
        header.write_text(json.dumps(now))
    return read(copy, cache)


def run(copy: Path, cache: Path, names: Sequence[str], processes: int) -> list[dict[str, Any]]:
    """Run test files with probes, or all of them; return the records."""
    folder = cache / "records"
    folder.mkdir(parents=True, exist_ok=True)
    for path in folder.glob("*.jsonl"):
        path.unlink()
    options = ["-q", "-p", "no:cacheprovider", "-n", str(processes)]
    command = [sys.executable, "-m", "pytest", *options, f"--basetemp={cache / 'map.tmp'}", *names]
    # Code that Ray pickles by value carries probes into processes without records.
    (folder / "sitecustomize.py").write_text("import builtins\n\nbuiltins.__reached__ = {}\n")
    variables = {**environment(copy), "PYTHONPATH": f"{copy}{os.pathsep}{folder}", FOLDER: str(folder)}
    variables["PYTEST_PLUGINS"] = "tests.mutants.probes"
    # A failed test is no part of the map.
    subprocess.run(command, cwd=copy, env=variables, stdout=sys.stderr, check=False)
    return list(records(folder))


def read(root: Path, cache: Path) -> Reach:
    """Read the map of a tree from its file."""
    places, total = offsets(root)
    tests, seconds, shared, lines = [], [], [], []
    imported = np.zeros((total + 7) // 8, np.uint8)
    for record in records(cache):
        bits = np.packbits(np.frombuffer(zlib.decompress(base64.b64decode(record["lines"])), np.uint8))
        if record["test"] is None:
            imported |= bits
        else:
            tests.append(record["test"])
            seconds.append(record["seconds"])
            shared.append(record["shared"])
            lines.append(bits)
    if not tests:
        raise SystemExit(f"no test passed; see {os.fspath(cache)}")
    return Reach(
        *(places, tuple(tests), np.array(seconds), np.array(shared)), np.stack(lines), imported, importers(root)
    )
