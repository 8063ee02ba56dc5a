"""`python -m tests.fuzz disturbed`: many cases, and a table of what was injected and what survived."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

import click
from rich.console import Console
from rich.progress import track
from rich.table import Table

from tests.fuzz import record
from tests.fuzz.disturbed.cases import Case, survive
from tests.fuzz.disturbed.grid import Grid


@click.command()
@click.option("--first", default=0, show_default=True, help="The first seed.")
@click.option("--count", default=100, show_default=True, help="How many seeds.")
@click.option("--write", is_flag=True, help="Keep the table in survived.json, with the commit and the machine.")
def main(first: int, count: int, write: bool) -> None:
    """Disturb so many runs at random moments, and compare each with a run that was left in peace."""
    console = Console()
    injected: Counter[str] = Counter()
    survived: Counter[str] = Counter()
    with Grid() as grid:
        for seed in track(range(first, first + count), "disturbing runs", console=console):
            case = Case(seed)
            grid.complete()
            with TemporaryDirectory() as folder:
                outcome = survive(case, Path(folder), grid if case.on_grid else None)
            injected[case.injury] += outcome.injured
            survived[case.injury] += outcome.injured and not outcome.wrong
            if outcome.wrong or not outcome.injured:
                console.print(f"{case}: {outcome.wrong or 'nothing was injured'}", highlight=False)
    table = Table("fault", "injected", "survived, bytes equal")
    for injury in sorted(injected):
        table.add_row(injury, str(injected[injury]), str(survived[injury]))
    console.print(table)
    if write:
        counts = {name: {"injected": injected[name], "bytes equal": survived[name]} for name in sorted(injected)}
        record.keep("survived", {"faults": counts})
    raise SystemExit(int(survived != injected))


if __name__ == "__main__":
    main()
