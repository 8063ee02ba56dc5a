"""`python -m tests.matrix`: run the configurations in every way, and compare their digests, also with a file's."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory

import click
from rich.console import Console
from rich.progress import track

import raysim
from tests.matrix.configurations import CONFIGURATIONS
from tests.matrix.executions import EXECUTIONS, run, run_stopped


def differing(digests: dict[str, dict[str, str]], frozen: dict[str, str]) -> list[str]:
    """Return what differs between the ways to run a configuration, or from the frozen digests of it."""
    expected = frozen or digests["inline"]
    return [
        f"{way}: {part}"
        for way, found in digests.items()
        for part in sorted(expected.keys() | found.keys())
        if found.get(part) != expected.get(part)
    ]


@click.command()
@click.argument("names", nargs=-1)
@click.option("--inline", is_flag=True, help="Run in this process alone, without Ray.")
@click.option("--write", type=click.Path(path_type=Path), help="Write the digests to this file.")
@click.option("--against", type=click.Path(path_type=Path, exists=True), help="Compare with the digests of this file.")
def main(names: tuple[str, ...], inline: bool, write: Path | None, against: Path | None) -> None:
    """Run all configurations, or those of the given names; the exit status says whether all digests are equal."""
    console, frozen = Console(), json.loads(against.read_text()) if against else {}
    chosen = names or tuple(CONFIGURATIONS)
    found: dict[str, dict[str, dict[str, str]]] = {name: {} for name in chosen}
    ways = EXECUTIONS[:2] if inline else EXECUTIONS
    for way in ways:
        fleet = {"one actor": raysim.Actors(1), "two actors": raysim.Actors(2)}.get(way)
        for name in track(chosen, way, console=console):
            config = CONFIGURATIONS[name]
            with TemporaryDirectory() as folder:
                try:
                    run_here = run_stopped(config, Path(folder, "run")) if way == "stopped" else None
                    found[name][way] = run_here or run(config, Path(folder, "run"), fleet)
                except Exception as error:  # the others are run all the same
                    found[name][way] = {"error": f"{type(error).__name__}: {error}"}
                    console.print(f"{name}, {way}: {error}", highlight=False)
        if fleet is not None:
            fleet.close()
    wrong = {name: each for name in chosen if (each := differing(found[name], frozen.get(name, {})))}
    for name, each in wrong.items():
        console.print(f"{name}: {', '.join(each)}", highlight=False)
    compared = sum(len(parts) for each in found.values() for parts in each.values())
    console.print(f"{len(chosen)} configurations, {compared} comparisons, {len(wrong)} configurations differ")
    if write:
        write.write_text(json.dumps({name: each["inline"] for name, each in found.items()}, indent=1))
    raise SystemExit(bool(wrong) or any("error" in parts for each in found.values() for parts in each.values()))


if __name__ == "__main__":
    main()
