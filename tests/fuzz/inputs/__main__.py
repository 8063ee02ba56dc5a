"""`python -m tests.fuzz inputs`: many drawn commands, files and options; each is refused in one line, or done."""

from __future__ import annotations

import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import click

from tests.fuzz import record
from tests.fuzz.inputs.commands import command
from tests.fuzz.inputs.refusals import SECONDS, Workplace


@click.command()
@click.option("--first", default=0, show_default=True, help="The first seed.")
@click.option("--count", default=100, show_default=True, help="How many seeds.")
@click.option("--jobs", default=2, show_default=True, help="How many at once.")
@click.option("--write", is_flag=True, help="Keep the counts beside this file, with the commit and the machine.")
@click.option("--show", is_flag=True, help="Show the end of every case.")
def main(first: int, count: int, jobs: int, write: bool, show: bool) -> None:
    """Run so many drawn commands, and show those that do not hold."""
    place, began = Workplace(), time.monotonic()
    ends: Counter[str] = Counter()
    failed: Counter[str] = Counter()
    most = 0.0
    click.echo(f"undisturbed: {place.memory:.2f} GiB")
    try:
        with ThreadPoolExecutor(jobs) as pool:
            numbers = range(first, first + count)
            for number, outcome in zip(numbers, pool.map(place.case, numbers), strict=True):
                drawn = command(number, place.root / f"case-{number}", place.root, write=False)
                ends[drawn.kind] += 1
                most = max(most, outcome.gib)
                if outcome.wrong:
                    failed[drawn.kind] += 1
                    click.echo(f"--- {number} {drawn.kind}: {outcome.wrong}")
                elif show or outcome.seconds > SECONDS / 2:
                    click.echo(
                        f"{number} {outcome.status} {outcome.seconds:.1f} s {outcome.gib:.1f} GiB {outcome.said[:300]}"
                    )
    except KeyboardInterrupt:
        click.echo("interrupted: the counts are those so far")
    finally:
        place.close()
    seconds = time.monotonic() - began
    drawn_cases, failures = sum(ends.values()), sum(failed.values())
    click.echo(f"{drawn_cases} cases, {failures} failed, {seconds:.0f} s, at most {most:.2f} GiB: {dict(ends)}")
    if write:
        counts = {kind: {"drawn": ends[kind], "failed": failed[kind]} for kind in sorted(ends)}
        record.keep("inputs", {"seconds": round(seconds), "inputs": counts})
    raise SystemExit(int(bool(failed)))


if __name__ == "__main__":
    main()
