"""Tables for the terminal."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING

from rich.console import Console
from rich.filesize import decimal
from rich.table import Table

from raysim.common.units import human_seconds
from raysim.measures.metrics import USUAL
from raysim.report.words import ABSENT, VIEW, in_words
from raysim.store.result import AlgorithmResult, ShownResult

if TYPE_CHECKING:
    from raysim.reproduction.verdict import JudgedClaim

ACCURACIES = tuple(f"{target}_accuracy" for target in ("test", "held_out", "validation", "local", "domains"))
"""Accuracies that are shown if the file names no metrics."""

OTHER_METRICS = 4
"""Largest number of other metrics, without an accuracy."""

Result = AlgorithmResult | ShownResult
Cells = dict[str, list[str]]


def results_table(
    results: Sequence[Result],
    walls: Mapping[str, float] = MappingProxyType({}),
    metrics: Sequence[str] = (),
    width: int | None = None,
) -> Table:
    """Return metrics, accounted epsilon, rounds, time, virtual time and protocol bytes of each algorithm.

    A row is an algorithm. If that is too wide, a row is a number; if the algorithms are too many for that, each number
    of each algorithm has a row.

    Args:
        results: results to show.
        walls: wall-clock seconds by algorithm, with evaluations and files; empty to show the seconds of the rounds,
            without evaluations.
        metrics: metrics of the experiment, in the order in which they are shown; empty for the order of the results.
        width: characters of a line; None for any.
    """
    cells = _cells(results, walls, metrics)
    names = [result.name for result in results]
    by_algorithm = _grid("algorithm", list(cells), list(zip(names, *cells.values(), strict=True)))
    by_number = _grid("", names, [(heading, *row) for heading, row in cells.items()])
    for table in (by_algorithm, by_number):
        if width is None or Console(width=10_000).measure(table).maximum <= width:
            return table
    return _listed(names, cells)


def _cells(results: Sequence[Result], walls: Mapping[str, float], metrics: Sequence[str]) -> Cells:
    """Return the texts of each number by its heading, one for each algorithm."""
    cells: Cells = {
        in_words(name): [f"{result.metrics[name]:.4f}" if name in result.metrics else ABSENT for result in results]
        for name in _columns(results, metrics)
    }
    if any(result.epsilon is not None for result in results):
        cells["epsilon"] = ["none" if result.epsilon is None else f"{result.epsilon:.4g}" for result in results]
    cells["rounds"] = [str(result.rounds) for result in results]
    if walls:
        cells["seconds in all"] = [f"{walls.get(result.name, 0.0):.1f}" for result in results]
    else:
        cells["seconds of rounds"] = [f"{result.seconds:.1f}" for result in results]
    virtual = [result.simulated_seconds for result in results]
    if any(seconds is not None for seconds in virtual):
        cells["virtual time"] = ["none" if seconds is None else human_seconds(seconds) for seconds in virtual]
    cells["bytes up"] = [decimal(result.bytes_up) for result in results]
    cells["bytes down"] = [decimal(result.bytes_down) for result in results]
    return cells


def _columns(results: Sequence[Result], metrics: Sequence[str]) -> list[str]:
    """Return the metrics to show: those that the file names in their order, else the accuracies or the first few."""
    # The mean of the domains stands for the columns of each.
    every = dict.fromkeys(name for result in results for name in result.metrics)
    known = [name for name in every if not name.startswith("domain_")]
    if not metrics or tuple(metrics) in USUAL.values():
        accuracies = [name for name in ACCURACIES if name in known]
        views = [name for name in known if (match := VIEW.fullmatch(name)) and match[2] in ACCURACIES]
        return [*accuracies, *views] or known[:OTHER_METRICS]
    ends = [f"_{re.split('[:.]', name)[-1]}" for name in metrics]
    return list(dict.fromkeys(name for end in ends for name in known if name.endswith(end)))


def _grid(corner: str, headings: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    """Return a table of numbers, whose first column has the names of the rows."""
    table = Table()
    table.add_column(corner, no_wrap=True)
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    return table


def _listed(names: Sequence[str], cells: Cells) -> Table:
    table = Table("algorithm", "")
    table.add_column("", justify="right", no_wrap=True)
    for place, name in enumerate(names):
        for number, (heading, row) in enumerate(cells.items()):
            is_last = number == len(cells) - 1
            table.add_row(name if not number else "", heading, row[place], end_section=is_last)
    return table


def claims_table(claims: Sequence[JudgedClaim]) -> Table:
    """Return a table with a row a claim: the paper's number, ours and the verdict."""
    table = Table("claim")
    for heading in ("paper", "here", "condition"):
        table.add_column(heading, justify="right")
    table.add_column("verdict")
    for each in claims:
        paper = "" if each.claim.paper is None else f"{each.claim.shown(each.claim.paper):.4g}"
        here = f"{each.claim.shown(each.mean):.4g}" if each.numbers else ""
        spread = "" if each.spread is None else f" ± {each.spread:.2g}"
        table.add_row(each.claim.says, paper, here + spread, each.claim.condition, each.verdict)
    return table
