"""`python -m tests.mutants`: draw mutants of the packages, and run the tests that reach each."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import click

from tests.mutants import judging
from tests.mutants.judging import Slot
from tests.mutants.reach import Reach, update
from tests.mutants.sites import Mutant

ROOT = Path(__file__).parents[2]
CAUGHT = ("caught", "timed out")


@click.command()
@click.option("--draw", "count", default=300, help="Number of mutants; with 0 only the map of the tests is made.")
@click.option("--seed", default=1, help="Seed of the draw.")
@click.option("--same", type=click.Path(exists=True, path_type=Path), help="Results; run their mutants, and compare.")
@click.option("--out", default="mutants.json", type=click.Path(path_type=Path), help="Results; continued if it exists.")
@click.option("--cache", required=True, type=click.Path(path_type=Path), help="Folder for the map and for copies.")
@click.option("--tree", default=ROOT, type=click.Path(exists=True, path_type=Path), help="Checkout to test.")
@click.option("--budget", default=60.0, help="Seconds of tests per mutant.")
@click.option("--slots", default=2, help="Mutants at a time.")
def main(
    count: int, seed: int, same: Path | None, out: Path, cache: Path, tree: Path, budget: float, slots: int
) -> None:
    """Draw mutants, run the tests that reach each, and write how many are caught."""
    tree, cache, out = tree.resolve(), cache.resolve(), out.resolve()
    if cache.is_relative_to(tree):
        raise click.UsageError(f"--cache {cache}: must lie outside of {tree}")
    cache.mkdir(parents=True, exist_ok=True)
    before = list(read(same)) if same else []
    drawn = [mutant for mutant, _ in before] if same else judging.draw(tree, count, seed)
    reach = update(tree, cache, slots)
    if not drawn:
        return
    done = {mutant: result for mutant, result in read(out) if is_done(result, budget)} if out.exists() else {}
    results = run(
        drawn, {mutant: done[mutant] for mutant in drawn if mutant in done}, reach, tree, cache, out, budget, slots
    )
    for mutant, result in results.items():
        if result["outcome"] not in CAUGHT:
            click.echo(f"{result['outcome']}: {mutant}")
    if before:
        compare(dict(before), results)
    click.echo(judging.summary(list(results.values())))


def read(file: Path) -> Iterator[tuple[Mutant, dict[str, Any]]]:
    for entry in json.loads(file.read_text()):
        yield Mutant(**entry["mutant"]), entry["result"]


def is_done(result: dict[str, Any], budget: float) -> bool:
    """Return whether a longer budget would not run further tests."""
    return result["outcome"] != "survived" or not result["cut"] or result["budget"] >= budget


def write(file: Path, results: dict[Mutant, dict[str, Any]]) -> None:
    entries = [{"mutant": asdict(mutant), "result": result} for mutant, result in results.items()]
    new = file.with_suffix(".new")
    new.write_text(json.dumps(entries, indent=1, ensure_ascii=False) + "\n")
    new.rename(file)


def run(
    drawn: list[Mutant],
    done: dict[Mutant, dict[str, Any]],
    reach: Reach,
    tree: Path,
    cache: Path,
    out: Path,
    budget: float,
    slots: int,
) -> dict[Mutant, dict[str, Any]]:
    """Judge the mutants that are not done, and write the results after each."""
    free: SimpleQueue[Slot] = SimpleQueue()

    def judge(mutant: Mutant) -> None:
        slot = free.get()
        try:
            done[mutant] = judging.judge(mutant, slot, reach, budget)
        finally:
            free.put(slot)
        click.echo(f"{len(done)} {done[mutant]['outcome']}: {mutant}", err=True)

    with ExitStack() as stack:
        started = [Slot.start(tree, cache / f"slot-{number}") for number in range(slots)]
        for slot in started:
            stack.callback(slot.end)
            judging.check(slot, reach)
            free.put(slot)
        pool = stack.enter_context(ThreadPoolExecutor(slots))
        for _ in pool.map(judge, [mutant for mutant in drawn if mutant not in done]):
            write(out, dict(done))
        # A test that fails without a mutant says nothing of one.
        for test in judging.unsound(started[0], done.values(), reach):
            for result in done.values():
                if result.get("by") == test:
                    result["outcome"] = "unsure"
    results = {mutant: done[mutant] for mutant in drawn}
    write(out, results)
    return results


def compare(before: dict[Mutant, dict[str, Any]], now: dict[Mutant, dict[str, Any]]) -> None:
    """Print the mutants that are caught in one of two runs."""
    both = [mutant for mutant in before if now[mutant]["outcome"] != "gone"]
    for title, first, second in ("caught before and not now", before, now), ("caught now and not before", now, before):
        for mutant in both:
            if first[mutant]["outcome"] in CAUGHT and second[mutant]["outcome"] not in CAUGHT:
                click.echo(f"{title}: {mutant}")
    click.echo(f"before: {judging.summary([before[mutant] for mutant in both])}")


if __name__ == "__main__":
    main()
