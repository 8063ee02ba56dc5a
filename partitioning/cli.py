"""The command line: `partitioning make | inspect | plot | verify`."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from partitioning.command import run_command
from partitioning.errors import InputError

if TYPE_CHECKING:
    from partitioning.population import Population

_FOLDER = click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
_PICTURES = (".png", ".svg", ".pdf")


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and exit: 0 done, 1 failed, 2 wrong input; a failure is one line on stderr."""
    run_command(_group, "partitioning", arguments)


@click.group(name="partitioning", invoke_without_command=True, no_args_is_help=False)
@click.pass_context
def _group(context: click.Context) -> None:
    """Partition a labelled data set into clients with controlled sizes and class mixes."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


@_group.command()
@click.argument("source", type=click.Path(path_type=Path))
@click.option("--out", required=True, type=click.Path(path_type=Path), help="Folder to make.")
@click.option("--scheme", required=True, help="iid or dirichlet-qp.")
@click.option("--clients", required=True, type=int, help="Number of clients.")
@click.option("--label", default="label", show_default=True, help="Column with the label.")
@click.option("--test", type=click.Path(path_type=Path), help="Source that is the global test set; held in memory.")
@click.option("--size-alpha", type=float, help="Dirichlet prior of client sizes: small is uneven.  [1.0]")
@click.option("--label-alpha", type=float, help="Dirichlet prior of class mixes: small is uneven.  [1.0]")
@click.option("--min-size", type=int, help="Least samples a client gets.  [1]")
@click.option("--test-clients", default=0.0, help="Clients held out for test: a share or a number.  [0]")
@click.option("--local-test", default=0.0, help="Share of each client's samples that is its test part.  [0]")
@click.option("--seed", default=0, show_default=True, help="Keys every random draw.")
@click.option("--memory", default="256MiB", show_default=True, help="Samples held at once: 500MB, 2GiB.")
def make(source: Path, out: Path, test: Path | None, memory: str, **options: Any) -> None:
    """Partition SOURCE into a population at --out.

    SOURCE is a .parquet, .arrow, .feather, .csv, .tsv or .npz file, or a folder of images by class.
    """
    from rich.console import Console

    from partitioning import statistics
    from partitioning.making import make as make_population
    from partitioning.patience import patience
    from partitioning.sources import open_source, read_columns
    from partitioning.units import parse_bytes
    from partitioning.writing import check_out

    check_out(out)  # before anything that takes time
    size = parse_bytes("--memory", memory)
    given = {name: value for name, value in options.items() if value is not None}
    with patience(Console(stderr=True)) as progress:
        population = make_population(
            open_source(source),
            out,
            test=None if test is None else read_columns(open_source(test)),
            memory=size,
            progress=progress,
            **given,
        )
    numbers = statistics.summarise(population.class_counts)
    click.echo(
        f"{out}: {numbers.clients} clients with {numbers.samples} samples of {numbers.classes} classes, "
        f"{numbers.min} to {numbers.max} a client, C-score {numbers.c_score:.2f}"
    )
    click.echo(f"next: partitioning inspect {out}   or   partitioning plot {out} --out heatmap.png")


@_group.command()
@_FOLDER
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
def inspect(folder: Path, as_json: bool) -> None:
    """Show what the population in DIR holds."""
    import json

    from partitioning.population import Population

    population = Population.open(folder)
    facts = _facts(population)
    if as_json:
        click.echo(json.dumps(facts, indent=2))
    else:
        _print_table(folder, facts)


def _facts(population: "Population") -> dict[str, Any]:
    from partitioning import statistics

    manifest = population.manifest
    return {
        "dataset": manifest.dataset,
        "scheme": manifest.scheme,
        **manifest.parameters,
        "seed": manifest.seed,
        **dataclasses.asdict(statistics.summarise(population.class_counts)),
        "train_clients": len(population.train_clients),
        "test_clients": len(population.test_clients),
        "local_test_samples": int(population.test_sizes.sum()),
        "global_test_samples": manifest.counts.test_rows,
        "columns": {column.name: column.type for column in manifest.columns},
    }


def _print_table(folder: Path, facts: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title=str(folder), show_header=False, title_justify="left")
    for name, value in facts.items():
        table.add_row(name.replace("_", " "), _in_words(value))
    Console().print(table)


def _in_words(value: Any) -> str:
    if isinstance(value, dict):
        return "\n".join(f"{column}: {kind}" for column, kind in value.items())
    return f"{value:.6g}" if isinstance(value, float) else str(value)


@_group.command()
@_FOLDER
@click.option("--out", required=True, type=click.Path(path_type=Path), help="Picture to write.")
def plot(folder: Path, out: Path) -> None:
    """Draw the label heatmap of the population in DIR."""
    from partitioning.plot import heatmap
    from partitioning.population import Population

    if out.suffix.lower() not in _PICTURES:
        raise InputError(f"out is {str(out)!r}: give a name that ends in {', '.join(_PICTURES)}")
    if not out.parent.is_dir():
        raise InputError(f"out is {str(out)!r}: {out.parent} is not a folder; make it first")
    population = Population.open(folder)
    draft = out.with_name(f".{out.stem}.draft{out.suffix}")
    try:
        heatmap(population.class_counts, population.manifest.classes).savefig(draft, dpi=150)
        draft.replace(out)
    finally:
        draft.unlink(missing_ok=True)
    click.echo(f"{out}: label heatmap of {len(population)} clients")


@_group.command()
@_FOLDER
def verify(folder: Path) -> None:
    """Check every byte of the population in DIR."""
    from partitioning.verification import verify as find_faults

    findings = find_faults(folder)
    if findings:
        more = f" (and {len(findings) - 1} more, listed above)" if len(findings) > 1 else ""
        if more:
            click.echo("\n".join(findings))
        raise InputError(findings[0] + more)
    click.echo(f"{folder}: every checksum, count and sum is right")
