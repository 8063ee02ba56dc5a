"""The commands that show a population that is there: `inspect` and `plot`."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from partitioning.cli.exit_status import folder_of
from partitioning.common.disk import write_whole
from partitioning.common.errors import InputError

if TYPE_CHECKING:
    from rich.console import Console

    from partitioning.measures.table_one import Row
    from partitioning.store.population import Population

_PICTURES = (".png", ".svg", ".pdf")
_WORDS = {
    "label_entropy": "label entropy (bits)",
    "global_entropy": "label entropy of all data (bits)",
    "js_divergence": "Jensen-Shannon divergence (bits)",
    "earth_movers": "earth mover's distance",
    "size_gini": "Gini coefficient of sizes",
    "labels": "labels a client",
    "feature_c_scores": "C-score by feature",
}
_IN_ROW = ("min", "max", "mean", "std", "c_score")  # Table I has them already
_LISTED = 8  # values of a list that are printed

_FOLDERS = click.argument("folders", metavar="DIR...", nargs=-1, required=True)


@dataclasses.dataclass(frozen=True)
class _Facts:
    """What there is to say of a population: its row of Table I, and then groups of named values."""

    row: "Row"
    made: Mapping[str, Any]
    parameters: Mapping[str, Any]
    numbers: Mapping[str, Any]
    report: Mapping[str, Any]
    columns: Mapping[str, str]

    def to_json(self) -> dict[str, Any]:
        # Parameters also by their own names, a number of the same name apart.
        groups = {"parameters": self.parameters, "report": self.report, "columns": self.columns}
        return {**self.parameters, **self.made, **self.numbers, **groups}


@click.command()
@_FOLDERS
@click.option("--json", "as_json", is_flag=True, help="Print JSON: an object, or a list of them for several DIRs.")
@click.option("--out", type=click.Path(path_type=Path), help="Write the rows of Table I: .csv, .md, .tex or .json.")
def inspect(folders: Sequence[str], as_json: bool, out: Path | None) -> None:
    """Show what the populations in DIR..., folders or URIs, hold, headed by their rows of RADFed's Table I."""
    import json

    from partitioning.measures.table_one import FORMATS
    from partitioning.store.population import Population

    if out is not None:
        _check_file(out, FORMATS)
    facts = [_gather(folder, Population.open(folder_of(folder))) for folder in folders]
    if as_json:
        records = [each.to_json() for each in facts]
        click.echo(json.dumps(records if len(records) > 1 else records[0], indent=2))
    else:
        _print(facts)
    if out is not None:
        with write_whole(out) as draft:
            draft.write_text(FORMATS[out.suffix.lower()]([each.row for each in facts]), encoding="utf-8")
        click.echo(f"{out}: Table I, rows: {len(facts)}", err=True)


@click.command()
@_FOLDERS
@click.option("--out", required=True, type=click.Path(path_type=Path), help="Picture to write: .png, .svg or .pdf.")
@click.option(
    "--panel",
    "panels",
    multiple=True,
    help="heatmap, bars, sizes or features; may be given several times.  [all that apply]",
)
def plot(folders: Sequence[str], out: Path, panels: Sequence[str]) -> None:
    """Draw the population in DIR, or two side by side: class counts and shares, sizes, features."""
    from partitioning.pictures.plot import View, draw, save
    from partitioning.store.population import Population

    _check_file(out, _PICTURES)
    if len(folders) > 2:
        raise InputError(f"{len(folders)} populations are given: a picture has room for one, or two side by side")
    views = [View.of(Population.open(folder_of(folder)), folder) for folder in folders]
    figure = draw(views, panels)
    with write_whole(out) as draft:
        save(figure, draft)
    click.echo(f"{out}: {' and '.join(f'{view.sizes.size} clients of {view.name}' for view in views)}")


def _check_file(out: Path, endings: Sequence[str] | Mapping[str, object]) -> None:
    if out.suffix.lower() not in endings:
        raise InputError(f"out is {str(out)!r}: give a name that ends in {', '.join(endings)}")
    if out.is_dir():
        raise InputError(f"out is {str(out)!r}, which is a folder: give the name of a file")
    if not out.parent.is_dir():
        raise InputError(f"out is {str(out)!r}: {out.parent} is not a folder; make it first")


def _gather(name: str, population: "Population") -> _Facts:
    from partitioning.measures import statistics
    from partitioning.measures.table_one import table_row

    manifest, counts = population.manifest, population.class_counts
    numbers = statistics.summarise(counts)
    scores = statistics.feature_scores(population.feature_counts)
    return _Facts(
        row=table_row(name, numbers),
        made={"dataset": manifest.dataset, "scheme": manifest.scheme, "seed": manifest.seed},
        parameters=manifest.parameters,
        numbers={
            **dataclasses.asdict(numbers),
            **dataclasses.asdict(statistics.measure_skew(counts)),
            "feature_c_scores": scores,
            "train_clients": len(population.train_clients),
            "validation_clients": len(population.validation_clients),
            "test_clients": len(population.test_clients),
            "folds": manifest.splits.folds,
            "clients_by_site": _clients_by_site(population),
            "samples_left_out": manifest.counts.source_rows - manifest.counts.samples,
            "local_test_samples": int(population.test_sizes.sum()),
            "global_test_samples": manifest.counts.test_rows,
        },
        report=manifest.report,
        columns={column.name: column.type for column in manifest.columns},
    )


def _clients_by_site(population: "Population") -> dict[str, int]:
    sites = population.sites
    return {} if sites is None else {each["values"]: each["counts"] for each in sites.value_counts().to_pylist()}


def _print(facts: Sequence[_Facts]) -> None:
    from rich.console import Console
    from rich.table import Table

    from partitioning.measures.table_one import in_words

    console = Console(markup=False, emoji=False, highlight=False)  # names are printed as they are
    table = Table()
    for column in facts[0].row:
        table.add_column(column, justify="left" if column == "Dataset" else "right")
    for each in facts:
        table.add_row(*in_words(each.row))
    console.print(table)
    for each in facts:
        _print_groups(console, each)


def _print_groups(console: "Console", facts: _Facts) -> None:
    from rich.table import Table

    numbers = {
        _WORDS.get(name, name.replace("_", " ")): value
        for name, value in facts.numbers.items()
        if name not in _IN_ROW and value != {}
    }
    groups = [numbers, facts.report, {**facts.made, **facts.parameters}, facts.columns]
    table = Table(title=str(facts.row["Dataset"]), show_header=False, title_justify="left")
    for group in groups:
        for name, value in lines(group):
            table.add_row(name, value)
        table.add_section()
    console.print(table)


def lines(values: Mapping[str, Any], depth: int = 0) -> Iterator[tuple[str, str]]:
    """Give a name and a value a line; what a mapping holds follows its name, indented."""
    for name, value in values.items():
        is_nested = isinstance(value, Mapping) and len(value) > 0
        yield "  " * depth + name, "" if is_nested else _in_words(value)
        if is_nested:
            yield from lines(value, depth + 1)


def _in_words(value: object) -> str:
    if isinstance(value, Mapping) or value is None:
        return "none"
    if isinstance(value, list | tuple):
        more = f", ... ({len(value)} in all)" if len(value) > _LISTED else ""
        return ", ".join(_in_words(each) for each in value[:_LISTED]) + more
    return f"{value:.6g}" if isinstance(value, float) else str(value)
