"""A benchmark of a few minutes for each change of the engine: loads B, E and I, beside plain loops and the last record.

    uv run python -m tests.benchmarks.watch [--loads BEI] [--data DIR] [--repeats 1]

A figure is a ratio: raysim's seconds over those of plain loops in the same run. B and E are seconds a round, over those
of two plain loops that share the same client updates; in E these are empty, so the ratio is the engine's cost of a
client update. I is a whole job over a plain loop that does the same. Beside each ratio stands the one that `speed.json`
holds. Nothing is written: `tests.benchmarks.speed` writes the record.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.benchmarks import jobs, rounds
from tests.benchmarks.record import IDEAL, load_record

NOISE = 0.1
"""Relative change of a ratio that one run on a quiet machine does not tell from none."""

OVER = {"B": (rounds.RAYSIM, IDEAL), "E": (rounds.RAYSIM, IDEAL), "I": (jobs.COMMAND, jobs.PLAIN)}
"""Numerator and denominator of each load's ratio."""


@dataclass(frozen=True)
class Watched:
    """A load's ratio beside the recorded one.

    Args:
        load: load.
        now: ratio of this run.
        before: ratio of the record; None if it has none.
        commit: commit of the record.
    """

    load: str
    now: float
    before: float | None
    commit: str

    @property
    def change(self) -> float | None:
        """Relative change: 0.1 is a tenth slower."""
        return None if self.before is None else self.now / self.before - 1

    @property
    def verdict(self) -> str:
        """Reading of the change."""
        if self.change is None:
            return "no record"
        if abs(self.change) <= NOISE:
            return "within noise"
        return "slower: find out why, or repeat" if self.change > 0 else "faster"


def ratio(load: str, figures: Mapping[str, float]) -> float | None:
    """Return a load's ratio; None if a figure is missing."""
    above, below = (figures.get(title) for title in OVER[load])
    return None if above is None or below is None else above / below


def compared(load: str, figures: Mapping[str, float]) -> Watched:
    """Return a load's ratio beside the recorded one."""
    entry, now = load_record().get(load, {}), ratio(load, figures)
    if now is None:
        raise ValueError(f"load {load} lacks a figure: {dict(figures)}")
    return Watched(load, now, ratio(load, entry.get("figures", {})), entry.get("commit", "–"))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--loads", default="BEI")
    parser.add_argument("--data", type=Path, help="folder of MNIST for load I; default $RAYSIM_TEST_DATA")
    parser.add_argument("--repeats", type=int, default=1)
    asked = parser.parse_args()
    if "I" in asked.loads:
        jobs.mnist(asked.data)
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for load in asked.loads:
            if load == "I":
                plain, command, _ = jobs.evaluated_rounds(Path(folder), asked.data)
                figures = rounds.medians([plain, command], asked.repeats)
            else:
                figures = rounds.measure(load, None, asked.repeats, 12, Path(folder))
            found.append(compared(load, figures))
            show(found)


def show(found: list[Watched]) -> None:
    """Print the ratios so far."""
    table = Table(title="raysim over plain loops")
    for column in ("load", "now", "record", "commit", "change", ""):
        table.add_column(column)
    for each in found:
        before = "–" if each.before is None else f"{each.before:.2f}"
        change = "–" if each.change is None else f"{each.change:+.0%}"
        table.add_row(each.load, f"{each.now:.2f}", before, each.commit, change, each.verdict)
    Console().print(table)


if __name__ == "__main__":
    main()
