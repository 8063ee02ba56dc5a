"""The command line: `partitioning make | inspect | plot | verify`."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

import click

from partitioning.command import run_command
from partitioning.errors import InputError
from partitioning.showing import inspect, plot

_FOLDER = click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))


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
@click.option("--test", multiple=True, help="Table that is the global test set, or NAME=TABLE, a domain's; repeatable.")
@click.option("--size-alpha", type=float, help="Dirichlet prior of client sizes: small is uneven.  [1.0]")
@click.option("--label-alpha", type=float, help="Dirichlet prior of class mixes: small is uneven.  [1.0]")
@click.option("--min-size", type=int, help="Least samples a client gets.  [1]")
@click.option("--test-clients", default=0.0, help="Clients held out for test: a share or a number.  [0]")
@click.option("--validation-clients", default=0.0, help="Clients held out for validation, likewise.  [0]")
@click.option("--folds", default=0, help="Folds for cross-validation by client, 3 or more, in place of those.  [0]")
@click.option("--stratify", is_flag=True, help="Give held-out groups, or folds, clients of like sizes.")
@click.option("--local-test", default=0.0, help="Share of each client's samples that is its test part.  [0]")
@click.option(
    "--feature", "features", multiple=True, help="Column whose values are counted on each client; repeatable."
)
@click.option("--buckets", default=4, show_default=True, help="Quantiles into which a feature of numbers is counted.")
@click.option("--standardise", is_flag=True, help="Take each numeric column's mean and deviation on every client.")
@click.option("--index-only", is_flag=True, help="Write which rows each client has, and no samples.")
@click.option("--seed", default=0, show_default=True, help="Keys every random draw.")
def make(source: Path, out: Path, test: tuple[str, ...], **options: Any) -> None:
    """Partition SOURCE, a .parquet, .arrow or .feather table, into a population at --out."""
    from rich.console import Console

    from partitioning import statistics
    from partitioning.making import make as make_population
    from partitioning.patience import patience
    from partitioning.sources import read_table
    from partitioning.writing import check_out

    check_out(out)  # before anything that takes time
    tests = _name_tests(test)
    given = {name: value for name, value in options.items() if value is not None}
    with patience(Console(stderr=True)) as progress:
        population = make_population(
            read_table(source),
            out,
            test={name: read_table(path) for name, path in tests.items()},
            dataset=source.name,
            progress=progress,
            **given,
        )
    numbers = statistics.summarise(population.class_counts)
    click.echo(
        f"{out}: {numbers.clients} clients with {numbers.samples} samples of {numbers.classes} classes, "
        f"{numbers.min} to {numbers.max} a client, C-score {numbers.c_score:.2f}"
    )
    click.echo(f"next: partitioning inspect {out}   or   partitioning plot {out} --out heatmap.png")


def _name_tests(given: Sequence[str]) -> dict[str | None, Path]:
    # A file is taken for what it is, whatever signs its name has.
    tests: dict[str | None, Path] = {}
    for text in given:
        name, separator, path = text.partition("=")
        named = bool(separator) and not Path(text).is_file()
        key = name if named else None
        if key in tests:
            title = "the global test set" if key is None else f"the test set {key!r}"
            raise InputError(f"--test gives {title} twice: give each one once, as NAME=TABLE for a domain")
        tests[key] = Path(path if named else text)
    return tests


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


_group.add_command(inspect)
_group.add_command(plot)
