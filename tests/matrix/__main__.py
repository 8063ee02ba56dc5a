"""`python -m tests.matrix`: run the configurations in every way, and compare their digests, also with a file's."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory

import click
import torch
from rich.console import Console
from rich.progress import track

import raysim
from raysim.config.tables import FleetTable
from raysim.fleet.ray_runtime import running
from tests.kit.ray import await_actors
from tests.matrix.configurations import CONFIGURATIONS
from tests.matrix.executions import differing, run_as

PART = 0.25
"""Part of a GPU of each actor: one and two of them run at once."""


@contextmanager
def fleets(gpus: float = 0) -> Iterator[dict[str, raysim.Actors]]:
    """Run a Ray whose one and two actors have started, each with this part of a GPU, by the way of running on them."""
    with running(3, None), raysim.Actors(1) as one, raysim.Actors(2) as two:
        found = {"one actor": one, "two actors": two}
        for actors in found.values():
            with actors.place(FleetTable(gpus_per_actor=gpus)) as place:
                await_actors(place.pool)
        yield found


@click.command()
@click.argument("names", nargs=-1)
@click.option("--inline", is_flag=True, help="Run in this process alone, without Ray.")
@click.option("--gpu", is_flag=True, help="Run on one and on two actors that share a GPU, and in no other way.")
@click.option("--write", type=click.Path(path_type=Path), help="Write the digests to this file.")
@click.option("--against", type=click.Path(path_type=Path, exists=True), help="Compare with the digests of this file.")
def main(names: tuple[str, ...], inline: bool, gpu: bool, write: Path | None, against: Path | None) -> None:
    """Run all configurations, or those of the given names; the exit status says whether all digests are equal."""
    if inline and gpu:
        raise click.UsageError("--inline with --gpu: must be one of them; leave one out")
    if gpu and not torch.cuda.is_available():
        raise click.UsageError("--gpu: must be left out on a machine without a GPU that torch sees")
    console, frozen = Console(), json.loads(against.read_text()) if against else {}
    chosen = names or tuple(CONFIGURATIONS)
    found: dict[str, dict[str, dict[str, str]]] = {name: {} for name in chosen}
    gpus = PART if gpu else 0
    with nullcontext(dict[str, raysim.Actors]()) if inline else fleets(gpus) as actors:
        for way in (*(() if gpu else ("inline", "stopped", "killed")), *actors):
            for name in track(chosen, way, console=console):
                with TemporaryDirectory() as folder:
                    try:
                        found[name][way] = run_as(way, name, Path(folder, "run"), actors.get(way), gpus)
                    except Exception as error:  # the others are run all the same
                        found[name][way] = {"error": f"{type(error).__name__}: {error}"}
                        console.print(f"{name}, {way}: {error}", highlight=False)
    wrong = {
        name: each for name in chosen if (each := differing(found[name], frozen.get(name, {}) if against else None))
    }
    for name, each in wrong.items():
        console.print(f"{name}: {', '.join(each)}", highlight=False)
    # Without a file, the first way is what the others are compared with.
    compared = sum(len(parts) for each in found.values() for parts in list(each.values())[not against :])
    console.print(f"{len(chosen)} configurations, {compared} comparisons, {len(wrong)} configurations differ")
    if write:
        write.write_text(json.dumps(to_freeze(found), indent=1))
    raise SystemExit(bool(wrong) or any("error" in parts for each in found.values() for parts in each.values()))


def to_freeze(found: Mapping[str, Mapping[str, dict[str, str]]]) -> dict[str, dict[str, str]]:
    """Return the digests of each configuration for a file, those of the first way.

    Raises:
        UsageError: a run failed.
    """
    for name, each in found.items():
        if error := next((parts["error"] for parts in each.values() if "error" in parts), None):
            raise click.UsageError(f"--write: must be of runs that end, and {name!r} raised {error}; correct it first")
    return {name: next(iter(each.values())) for name, each in found.items()}


if __name__ == "__main__":
    main()
