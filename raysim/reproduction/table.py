"""Table of a reproduction's claims for the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from raysim.reproduction.verdict import JudgedClaim


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
