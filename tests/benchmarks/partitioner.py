"""How long the partitioner takes and what memory: each scheme, the solvers side by side, populations as in the paper.

    uv run python -m tests.benchmarks.partitioner [--parts schemes solvers papers] [--clients 100 10000 1000000]
        [--cvxpy 100000] [--data DIR]

Each scheme is measured in a process of its own, whose peak of memory stands beside that of one with only the labels.
`--cvxpy` is the most entries that are given to cvxpy too (10,000 x 100 takes a minute or two), and `--data` a folder
with MNIST as torchvision keeps it. Results are printed and saved in `partitioner.json` with commit and hardware.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import platform
import re
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

import partitioning
from partitioning import InputError, statistics
from partitioning.qp.problem import Problem
from partitioning.qp.randomise import Walk, randomise
from partitioning.qp.rounding import round_table
from partitioning.qp.solve import solve
from partitioning.schemes.registry import takes

RECORD = Path(__file__).with_suffix(".json")
CLASSES = 10
SOLVED = [(100, 10), (1_000, 10), (10_000, 10), (1_000, 100), (10_000, 100), (100_000, 10), (1_000_000, 10)]
TABLE_I = {"MNIST-1": ("mnist", 1.0, 0.70), "MNIST-0.1": ("mnist", 0.1, 1.29), "CIFAR-10": ("cifar10", 0.1, 1.29)}
"""RADFed, Table I: the data set, label_alpha, and the paper's C-score."""


def asked(scheme: str, clients: int, labels: np.ndarray) -> dict[str, Any]:
    """What a scheme takes, so that it deals all labels to so many clients."""
    each = labels.size // clients
    owners = np.arange(labels.size) % clients
    return {
        "dirichlet-qp": {"label_alpha": 0.1},
        "dirichlet": {"label_alpha": 0.1},
        "dirichlet-per-class": {"label_alpha": 0.1},
        "shards-unbalanced": {"shards": 4 * clients},
        "counts": {"table": np.full((clients, CLASSES), each // CLASSES)},
        "natural": {"column": owners},
        "domains": {"domain": owners % 10, "clients_per_domain": clients // 10},
    }.get(scheme, {}) | ({"clients": clients} if takes(scheme, "clients") else {})


def measure_scheme(scheme: str, clients: int) -> dict[str, Any]:
    """Seconds and MiB of one deal; 600 samples a client at 100 clients, 60 at 10,000, 10 at a million."""
    samples = {100: 600, 10_000: 60}.get(clients, 10) * clients
    labels = np.random.default_rng(0).permutation(np.arange(samples) % CLASSES)
    given, before = asked(scheme, clients, labels), _peak()
    started = time.perf_counter()
    try:
        partitioning.partition(labels, scheme, **given)
    except InputError as refusal:
        return {"scheme": scheme, "clients": clients, "refused": str(refusal)}
    seconds = time.perf_counter() - started
    return {"scheme": scheme, "clients": clients, "seconds": seconds, "mib": _peak(), "mib_before": before}


def measure_solvers(clients: int, classes: int, most: int) -> dict[str, Any]:
    """Problem (1) by the structured solver, and by cvxpy's Clarabel up to so many entries."""
    random = np.random.default_rng(0)
    sizes = random.multinomial(600 * clients, random.dirichlet(np.ones(clients)))
    columns = np.full(classes, 600 * clients // classes)
    mixes = random.dirichlet(np.full(classes, 0.1), size=clients)
    problem = Problem.of_classes(mixes * sizes[:, None], sizes, columns)
    row: dict[str, Any] = {"clients": clients, "classes": classes, "samples": int(sizes.sum())}
    for solver in ("structured", *(["clarabel"] if clients * classes <= most else [])):
        started = time.perf_counter()
        solution = solve(problem, solver)
        row[solver] = {
            "seconds": time.perf_counter() - started,
            "objective": solution.loss,
            "residual": solution.residual / sizes.sum(),
        }
        if solver == "structured":
            row["mib"] = _peak()
            started = time.perf_counter()
            rounded = round_table(solution.table, sizes, columns)
            row["rounding_seconds"] = time.perf_counter() - started
            row["rounding_distance"] = float(np.abs(rounded - solution.table).mean())
    return row


def measure_algorithm_3() -> dict[str, Any]:
    """P = 1e5 and Q = 5e5 moves on 100 x 10, none left out."""
    random = np.random.default_rng(0)
    sizes = random.multinomial(60_000, random.dirichlet(np.ones(100)))
    mixes = random.dirichlet(np.full(CLASSES, 0.1), size=100)
    problem = Problem.of_classes(mixes * sizes[:, None], sizes, np.full(CLASSES, 6_000))
    table = solve(problem, "structured").table
    started = time.perf_counter()
    walked = randomise(problem, table, Walk(ratio=1e9), np.random.default_rng(0))
    return {"seconds": time.perf_counter() - started, "optimum": walked.optimum, "loss": walked.loss}


def measure_papers(data: Path) -> list[dict[str, Any]]:
    """Populations like RADFed's Table I, train and test pooled, with Algorithm 3; means over five seeds."""
    rows = []
    for name, (dataset, alpha, paper) in TABLE_I.items():
        labels = pooled_labels(dataset, data)
        found = []
        for seed in range(5):
            parts = partitioning.dirichlet_qp(
                labels, clients=100, label_alpha=alpha, randomise="algorithm-3", seed=seed
            )
            found.append(statistics.summarise(np.array([np.bincount(labels[p], minlength=CLASSES) for p in parts])))
        scores = [each.c_score for each in found]
        rows.append(
            {
                "name": name,
                "samples": labels.size,
                "mean": found[0].mean,
                "c_score": float(np.mean(scores)),
                "spread": float(np.std(scores)),
                "paper": paper,
                **{side: float(np.mean([getattr(each, side) for each in found])) for side in ("min", "max", "std")},
            }
        )
    return rows


def pooled_labels(dataset: str, data: Path) -> np.ndarray:
    """The labels of train and test; those of CIFAR-10 are 6,000 a class, whether the files are there or not."""
    if dataset == "cifar10":
        return np.random.default_rng(0).permutation(np.repeat(np.arange(CLASSES), 6_000))
    files = [data / "MNIST" / "raw" / f"{part}-labels-idx1-ubyte" for part in ("train", "t10k")]
    return np.concatenate([np.frombuffer(file.read_bytes()[8:], np.uint8) for file in files]).astype(np.int64)


def apart(function: Any, *arguments: Any) -> Any:
    """Call in a process of its own, whose memory is then its own too."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(function, arguments)


def _peak() -> int:
    # MiB that this process has held at most; `ru_maxrss` of a child starts at its parent's.
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(re.findall(r"VmHWM:\s+(\d+)", status)[0]) // 1024


def _show(title: str, rows: Sequence[dict[str, Any]]) -> None:
    table = Table(title=title, title_justify="left")
    names = list(dict.fromkeys(name for row in rows for name in row))
    for name in names:
        table.add_column(name)
    for row in rows:
        table.add_row(*(_in_words(row.get(name, "")) for name in names))
    Console(width=200).print(table)


def _in_words(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {_in_words(each)}" for name, each in value.items())
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def main() -> None:
    """Measure, print and keep."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="+", default=["schemes", "solvers", "papers"])
    parser.add_argument("--clients", nargs="+", type=int, default=[100, 10_000, 1_000_000])
    parser.add_argument("--cvxpy", type=int, default=100_000)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    given = parser.parse_args()
    found: dict[str, Any] = json.loads(RECORD.read_text(encoding="utf-8")) if RECORD.exists() else {}
    if "schemes" in given.parts:
        cases = [(scheme, clients) for scheme in partitioning.SCHEMES for clients in given.clients]
        found["schemes"] = [apart(measure_scheme, *case) for case in cases]
        _show("schemes", found["schemes"])
    if "solvers" in given.parts:
        found["solvers"] = [apart(measure_solvers, *size, given.cvxpy) for size in SOLVED]
        found["algorithm_3"] = measure_algorithm_3()
        _show("problem (1)", found["solvers"])
        _show("Algorithm 3", [found["algorithm_3"]])
    if "papers" in given.parts:
        found["papers"] = measure_papers(given.data)
        _show("RADFed, Table I", found["papers"])
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    found["commit"] = commit.stdout.strip()
    found["hardware"] = f"{os.cpu_count()} cores, {platform.machine()}"
    RECORD.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
