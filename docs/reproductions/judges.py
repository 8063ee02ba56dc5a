"""Table of judges: publishers of cells that raysim's cells are compared with, one row each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from raysim.reproduction.claim import Claim
from raysim.reproduction.file import Reproduction
from raysim.reproduction.page import UNTESTED

BEGIN, END = "<!-- judges: written by docs.reproductions.collect -->", "<!-- end of judges -->"
"""Lines around the table in README.md."""

HEAD = (
    "| judge | cells | ✓ within | (✓) in direction | ✗ off, cause found | ✗ off, no cause yet | not run | "
    "order and ratios |\n|---|---|---|---|---|---|---|---|"
)

HOLD = ("holds", "holds in direction")


def judges(records: Iterable[Mapping[str, Any]], every: Iterable[Reproduction]) -> str:
    """Return the table of judges. A cell is a claim that a number is `within` a distance of a published one.

    Args:
        records: records of the reproductions that were run, with their files' words.
        every: all reproductions, run or not.
    """
    found = {record["name"]: record["claims"] for record in records}
    rows: dict[str, list[Mapping[str, Any]]] = {}
    for each in every:
        if each.about.judge:
            rows.setdefault(each.about.judge, []).extend(found.get(each.name) or map(_not_run, each.claims))
    return "\n".join([HEAD, *(_row(judge, claims) for judge, claims in rows.items())])


def with_table(page: str, table: str) -> str:
    """Return README's text with a new table between the two lines.

    Raises:
        ValueError: the lines are missing.
    """
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the page must have the lines {BEGIN} and {END}")
    return f"{before}{BEGIN}\n{table}\n{END}{after}"


def _not_run(claim: Claim) -> Mapping[str, Any]:
    return {**claim.model_dump(exclude_none=True), "verdict": UNTESTED}


def _is_cell(row: Mapping[str, Any]) -> bool:
    """Return whether a claim compares a number itself with the published one, and not a difference."""
    differs = any(row.get(key) is not None for key in ("minus", "minus_dataset"))
    return row.get("within") is not None and not differs


def _row(judge: str, claims: Sequence[Mapping[str, Any]]) -> str:
    cells = [row for row in claims if _is_cell(row)]
    orders = [row for row in claims if not _is_cell(row) and row["verdict"] != UNTESTED]
    counts = Counter(row["verdict"] for row in cells)
    off = [row for row in cells if row["verdict"] == "does not hold"]
    named = sum("cause" in row for row in off)
    numbers = (len(cells), counts["holds"], counts["holds in direction"], named, len(off) - named, counts[UNTESTED])
    hold = sum(row["verdict"] in HOLD for row in orders)
    return f"| {judge} | {' | '.join(str(n or '') for n in numbers)} | {f'{hold} of {len(orders)}' if orders else ''} |"
