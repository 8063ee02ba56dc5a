"""Mutants drawn by a seed, and the tests that catch each."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import cache_from_source
from pathlib import Path
from typing import Any, Self

from tests.mutants.copies import copied, environment
from tests.mutants.reach import Reach
from tests.mutants.sites import Mutant, mutants, mutated

MEASURED = ("algorithms", "partitioning", "raysim/simulation", "raysim/store", "raysim/measures")
FIRST_SECONDS = 8.0
"""Seconds of the tests that run first: they catch most mutants, and the others then need no import."""


def draw(tree: Path, count: int, seed: int) -> list[Mutant]:
    """Draw different mutants: the file by its number of sites, then the kind, then one of the file's of that kind."""
    files: dict[str, dict[str, list[Mutant]]] = {}
    weights = []
    for path in sorted(path for folder in MEASURED for path in (tree / folder).rglob("*.py")):
        kinds: dict[str, list[Mutant]] = defaultdict(list)
        for mutant, _, _ in mutants(str(path.relative_to(tree)), path.read_bytes()):
            kinds[mutant.kind].append(mutant)
        if kinds:
            files[str(path.relative_to(tree))] = kinds
            every = [mutant for some in kinds.values() for mutant in some]
            weights.append(len({(mutant.function, mutant.text, mutant.count, mutant.column) for mutant in every}))
    most = len({mutant for kinds in files.values() for some in kinds.values() for mutant in some})
    if count > most:
        raise SystemExit(f"--draw {count}: must be at most {most}, the number of mutants; draw fewer")
    rng, found = random.Random(seed), dict[Mutant, None]()
    while len(found) < count:
        kinds = files[rng.choices(list(files), weights)[0]]
        found[rng.choice(kinds[rng.choice(sorted(kinds))])] = None
    return list(found)


@dataclass
class Slot:
    """Copy of the tree and the process that runs tests in it.

    Args:
        copy: folder of the copy.
        process: see `tests.mutants.server`.
    """

    copy: Path
    process: subprocess.Popen[str]

    @classmethod
    def start(cls, tree: Path, copy: Path) -> Self:
        copied(tree, copy)
        command = [sys.executable, "-m", "tests.mutants.server"]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        return cls(copy, subprocess.Popen(command, cwd=copy, env=environment(copy), **pipes))  # type: ignore[call-overload]

    def run(self, tests: Mapping[str, float], *, stop: bool = True) -> dict[str, Any]:
        """Run tests; return the outcome, the failed tests and the seconds."""
        assert self.process.stdin and self.process.stdout
        request = {"tests": dict(tests), "said": f"{self.copy}.said", "stop": stop}
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        if not (line := self.process.stdout.readline()):
            raise RuntimeError("the process that runs the tests has ended")
        return dict(json.loads(line))

    def end(self) -> None:
        self.process.communicate()

    def write(self, file: str, source: bytes) -> None:
        """Write a file, and remove its byte code, which could pass for that of the new source."""
        path = self.copy / file
        path.write_bytes(source)
        Path(cache_from_source(str(path))).unlink(missing_ok=True)


def waves(tests: Mapping[str, float]) -> Iterator[dict[str, float]]:
    """Yield the first tests and the others."""
    first: dict[str, float] = {}
    for name, seconds in tests.items():
        if first and sum(first.values()) + seconds > FIRST_SECONDS:
            break
        first[name] = seconds
    yield first
    if rest := {name: seconds for name, seconds in tests.items() if name not in first}:
        yield rest


def judge(mutant: Mutant, slot: Slot, reach: Reach, budget: float) -> dict[str, Any]:
    """Run the tests of a mutant's line until one fails; return the outcome."""
    source = (slot.copy / mutant.file).read_bytes()
    changed = mutated(source, mutant)
    if changed is None:
        return {"outcome": "gone"}
    tests, cut = reach.chosen(mutant.file, statement_of(mutant, source), budget)
    if not tests:
        return {"outcome": "not reached"}
    seconds, outcome = 0.0, {}
    slot.write(mutant.file, changed)
    try:
        for wave in waves(tests):
            outcome = slot.run(wave)
            seconds += outcome["seconds"]
            if outcome["outcome"] != "survived":
                break
    finally:
        slot.write(mutant.file, source)
    by, error = next(iter(outcome["failed"].items()), (None, None))
    return {
        "outcome": outcome["outcome"],
        "by": by,
        "error": error,
        "seconds": round(seconds, 1),
        "tests": len(tests),
        "cut": cut,
        "budget": budget,
    }


def statement_of(mutant: Mutant, source: bytes) -> int:
    """Return the first line of the statement that a mutant changes, or 0 if it is in no function."""
    place = (mutant.function, mutant.text, mutant.count, mutant.column, mutant.old)
    for other, _, statement in mutants(mutant.file, source):
        if (other.function, other.text, other.count, other.column, other.old) == place:
            return statement
    return 0


def check(slot: Slot, reach: Reach) -> None:
    """Raise RuntimeError unless a test passes in a copy without a mutant."""
    test = int(reach.seconds.argmin())
    outcome = slot.run({reach.tests[test]: float(reach.seconds[test])})
    if outcome["outcome"] != "survived":
        raise RuntimeError(f"the tests fail without a mutant: {outcome['failed']}")


def unsound(slot: Slot, judged: Iterable[Mapping[str, Any]], reach: Reach) -> list[str]:
    """Return the tests that caught mutants and fail without them too."""
    seconds = dict(zip(reach.tests, (reach.seconds + reach.shared).tolist(), strict=True))
    tests: dict[str, float] = {}
    for result in judged:
        if result.get("by") in seconds:
            tests[result["by"]] = seconds[result["by"]]
    return list(slot.run(tests, stop=False)["failed"]) if tests else []


def summary(judged: Sequence[Mapping[str, Any]]) -> str:
    """Return the line that says how many mutants are caught."""
    counts: dict[str, int] = defaultdict(int)
    for result in judged:
        counts[result["outcome"]] += 1
    drawn = len(judged) - counts["gone"]
    caught = counts["caught"] + counts["timed out"]
    cut = sum(result["outcome"] == "survived" and result["cut"] > 0 for result in judged)
    return (
        f"caught {caught} of {drawn} ({100 * caught / max(drawn, 1):.1f} %), {counts['timed out']} of them by time; "
        f"{counts['survived']} survived, {cut} of them with tests cut; {counts['not reached']} not reached; "
        f"{counts['unsure']} unsure; {counts['gone']} gone"
    )
