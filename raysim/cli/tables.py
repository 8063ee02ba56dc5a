"""Tables for the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING

from rich.filesize import decimal
from rich.table import Table

from raysim.common.units import human_seconds
from raysim.store.result import AlgorithmResult, ShownResult

if TYPE_CHECKING:
    from raysim.reproduction.verdict import JudgedClaim

HEADINGS = {
    "test_accuracy": "test accuracy",
    "held_out_accuracy": "test accuracy, held-out clients",
    "validation_accuracy": "validation accuracy",
    "local_accuracy": "test accuracy, clients' own",
    "domains_accuracy": "test accuracy, mean of domains",
}

OTHER_METRICS = 4
"""Largest number of other metrics, without an accuracy."""


def results_table(
    results: Sequence[AlgorithmResult | ShownResult], walls: Mapping[str, float] = MappingProxyType({})
) -> Table:
    """Return a row per algorithm: metrics, accounted epsilon, rounds, seconds, virtual time and protocol bytes.

    Args:
        results: results to show.
        walls: wall-clock seconds by algorithm; empty, or with virtual time, for no such column.
    """
    metrics = results[0].metrics if results else {}
    names = [name for name in HEADINGS if name in metrics] or list(metrics)[:OTHER_METRICS]
    table = Table()
    table.add_column("algorithm", no_wrap=True)
    for name in names:
        table.add_column(HEADINGS.get(name, name.replace("_", " ")), justify="right")
    timed = ("virtual time",) if any(result.simulated_seconds is not None for result in results) else ()
    wall = ("wall seconds",) if walls and not timed else ()  # Both do not fit into 80 characters.
    private = ("epsilon",) if any(result.epsilon is not None for result in results) else ()
    for name in (*private, "rounds", "seconds", *wall, *timed, "bytes up", "bytes down"):
        table.add_column(name, justify="right", no_wrap=name in timed)
    for result in results:
        table.add_row(
            result.name,
            *(f"{result.metrics[name]:.4f}" for name in names),
            *("none" if result.epsilon is None else f"{result.epsilon:.4g}" for _ in private),
            str(result.rounds),
            f"{result.seconds:.1f}",
            *(f"{walls.get(result.name, 0.0):.1f}" for _ in wall),
            *("none" if result.simulated_seconds is None else human_seconds(result.simulated_seconds) for _ in timed),
            decimal(result.bytes_up),
            decimal(result.bytes_down),
        )
    return table


def claims_table(claims: Sequence[JudgedClaim]) -> Table:
    """Return a table with a row a claim: the paper's number, ours and the verdict."""
    table = Table("claim")
    for heading in ("paper", "here", "condition"):
        table.add_column(heading, justify="right")
    table.add_column("verdict")
    for each in claims:
        paper = "" if each.claim.paper is None else f"{each.claim.paper:.4g}"
        here = f"{each.mean:.4g}" if each.numbers else ""
        spread = "" if each.spread is None else f" ± {each.spread:.2g}"
        table.add_row(each.claim.says, paper, here + spread, each.claim.condition, each.verdict)
    return table
