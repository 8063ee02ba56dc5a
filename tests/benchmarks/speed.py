"""The speed of `raysim run`: loads A to Q, beside plain loops and other simulators, in one run.

    uv run python -m tests.benchmarks.speed [--loads ABCDEFGHIJKLMNOPQ] [--peers .peers] [--data DIR] [--repeats 5]

Every figure of raysim comes from the command itself, in a process of its own, with its defaults. A, B, C, E, G and K to
Q are seconds a round once both client actors work: the median time from the end of a round to the end of the next, and
that of the column `seconds` of `metrics.parquet`, which sums the stages of a round. "Two plain loops" are the ideal on
two cores: two processes that share the round's client updates, without a framework. E takes no step, G has a cohort of
10,000. D, I and J are whole jobs, from exec to exit. F has populations of 1e3, 1e5 and 1e6 clients, and H compares
redistribution with sums. K to N train language models, O to Q the papers' networks.

All ways take turns in every repeat, so a busy machine slows all alike. A figure is the median over the repeats. The
peers need the environments that peers/environments.sh makes; without `--peers` they are left out.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.benchmarks import jobs, scale
from tests.benchmarks.record import IDEAL, save
from tests.benchmarks.rounds import ROUNDS, measure, medians

LOADS = "ABCDEFGHIJKLMNOPQ"


def main() -> None:
    """Measure, print a table for each load, and write the record, load by load."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--loads", default=LOADS)
    parser.add_argument("--peers", type=Path, help="folder of the peers' environments")
    parser.add_argument("--data", type=Path, help="folder of MNIST for load I; default $RAYSIM_TEST_DATA")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=12, help="counted rounds of plain loops and peers per repeat")
    asked = parser.parse_args()
    if "I" in asked.loads:
        jobs.mnist(asked.data)
    with tempfile.TemporaryDirectory() as folder:
        for name in asked.loads:
            print(f"load {name}", flush=True)
            found = run(name, asked, Path(folder))
            show(name, found)
            save(name, found, asked.repeats)


def run(name: str, asked: argparse.Namespace, folder: Path) -> dict[str, float]:
    """Measure one load."""
    if name in ROUNDS:
        return measure(name, asked.peers, asked.repeats, asked.rounds, folder)
    others: dict[str, Callable[[], dict[str, float]]] = {
        "D": lambda: jobs.whole_job(asked.repeats, folder),
        "F": lambda: scale.populations(folder, asked.repeats),
        "H": lambda: scale.redistribution(folder, asked.repeats),
        "I": lambda: medians(jobs.evaluated_rounds(folder, asked.data), asked.repeats),
        "J": lambda: jobs.quickstart(asked.repeats, folder),
    }
    return others[name]()


def show(name: str, found: Mapping[str, float]) -> None:
    """Print a load's figures."""
    table = Table(title=f"load {name}")
    table.add_column("")
    table.add_column("figure", justify="right")
    table.add_column(f"to {IDEAL}", justify="right")
    ideal = found.get(IDEAL)
    for title, value in found.items():
        is_time = not title.endswith("microseconds a client update")
        table.add_row(title, f"{value:.4f}", f"{value / ideal:.2f}" if ideal and is_time else "")
    Console().print(table)


if __name__ == "__main__":
    main()
