"""Commands that write files: runs, a study, a reproduction, a population; their continuation and their result."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import tomli_w

from algorithms.names import ALGORITHMS
from raysim.store.run_folder import has_begun
from tests.fuzz.disturbed.run import experiment, left_of_all

Arguments = tuple[str, ...]

ROUNDS = 8


@dataclass(frozen=True)
class Workload:
    """Command that writes below the folder `out`.

    Args:
        name: display name.
        arguments: function from the folder above `out`, where it writes the input, to the program and its arguments.
        again: function from that folder to the program and arguments that continue the command; None if it has left
            nothing to continue.
    """

    name: str
    arguments: Callable[[Path], Arguments]
    again: Callable[[Path], Arguments | None]

    def result(self, home: Path) -> dict[str, Any]:
        """Return everything that must equal the result of an undisturbed command."""
        if (population := home / "out" / "population").exists():
            return {path.name: hashlib.sha256(path.read_bytes()).digest() for path in population.iterdir()}
        return left_of_all(home / "out" / "run")


def workloads() -> list[Workload]:
    """Return all commands: a run of each algorithm, and the others."""
    runs = [_run_workload(name) for name in sorted(ALGORITHMS)]
    other = [
        _run_workload("fedavg", "fedbn"),
        _run_workload("fedbn", "radfed", uri=True),
        Workload("study", _study, _study_again),
        Workload("reproduction", _reproduction, _reproduction),
        Workload("population", _population, _population),
    ]
    return [*runs, *other]


def _run_workload(*algorithms: str, uri: bool = False) -> Workload:
    """Return a run of algorithms in one process, in a folder or at a URI."""
    name = " and ".join(algorithms) + (" at a URI" if uri else "")
    return Workload(name, partial(_run, algorithms, uri), partial(_resume, uri))


def _run(algorithms: tuple[str, ...], uri: bool, home: Path) -> Arguments:
    tables = [table for each in algorithms for table in experiment(each)["algorithm"]]
    _write(home / "run.toml", {**_base(), "algorithm": tables})
    return "raysim", "run", f"{home}/run.toml", "--inline", "--out", _out(uri, home)


def _resume(uri: bool, home: Path) -> Arguments | None:
    begun = has_begun(home / "out" / "run")
    return ("raysim", "resume", _out(uri, home), "--inline") if begun else None


def _out(uri: bool, home: Path) -> str:
    return f"file://{home}/out/run" if uri else f"{home}/out/run"


def _study(home: Path) -> Arguments:
    algorithms = [{"name": "fedavg"}, {"name": "fedbn"}]
    _write(home / "study.toml", {**_base(), "rounds": 3, "study": {"seeds": [1, 2]}, "algorithm": algorithms})
    return "raysim", "study", f"{home}/study.toml", "--inline", "--out", f"{home}/out/run"


def _study_again(home: Path) -> Arguments | None:
    begun = (home / "out" / "run" / "study.toml").exists()
    return ("raysim", "study", f"{home}/out/run", "--inline") if begun else None


def _reproduction(home: Path) -> Arguments:
    return "raysim", "reproduce", "fedbn-quick", "--inline", "--set", "rounds=3", "--out", f"{home}/out/run"


def _population(home: Path) -> Arguments:
    lines = ["x,label", *(f"{number},{number % 4}" for number in range(400))]
    (home / "table.csv").write_text("\n".join(lines) + "\n")
    options = ("--scheme", "dirichlet-qp", "--clients", "6", "--local-test", "0.2")
    return "partitioning", "make", f"{home}/table.csv", "--out", f"{home}/out/population", *options


def _base() -> dict[str, Any]:
    """Return an experiment of a few short rounds, without its algorithm."""
    whole = {**experiment("fedavg"), "rounds": ROUNDS, "model": {"name": "mlp", "hidden": [16], "norm": "batch"}}
    del whole["algorithm"]
    return whole


def _write(path: Path, config: dict[str, Any]) -> None:
    path.write_text(tomli_w.dumps(config))
