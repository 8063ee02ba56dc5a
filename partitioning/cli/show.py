"""Commands on an existing population: `inspect`, `plot` and `verify`."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from partitioning.cli.paths import PATH
from partitioning.cli.terminal import echo
from partitioning.common.disk import write_whole
from partitioning.common.errors import InputError

if TYPE_CHECKING:
    from partitioning.cli.console import Console
    from partitioning.measures.table_one import Row
    from partitioning.store.population import Population

_PICTURES = (".png", ".svg", ".pdf")
_TITLES = {
    "label_entropy": "label entropy (bits)",
    "global_entropy": "label entropy of all data (bits)",
    "js_divergence": "Jensen-Shannon divergence (bits)",
    "earth_movers": "earth mover's distance",
    "size_gini": "Gini coefficient of sizes",
    "labels": "labels per client",
    "feature_c_scores": "C-score by feature",
}
_IN_ROW = ("min", "max", "mean", "std", "c_score")  # already in Table I
_LISTED = 8  # printed values of a list

_FOLDERS = click.argument("folders", metavar="DIR...", nargs=-1, required=True)


@click.command()
@_FOLDERS
@click.option("--json", "as_json", is_flag=True, help="Print JSON: one object, or a list for several DIRs.")
@click.option("--out", type=PATH, help="Write the rows of Table I: .csv, .md, .tex or .json.")
def inspect(folders: Sequence[str], as_json: bool, out: Path | None) -> None:
    """Describe the populations in DIR... (folders or URIs), with their rows of RADFed's Table I."""
    import json

    from partitioning.measures.table_one import FORMATS
    from partitioning.store.population import Population

    if out is not None:
        _check_file(out, FORMATS)
    rows, facts = zip(*(_gather(folder, Population.open(_local_folder(folder))) for folder in folders), strict=True)
    if as_json:
        records = [_to_record(each) for each in facts]
        text = json.dumps(records if len(records) > 1 else records[0], indent=2)
        click.echo(text.replace("\x7f", "\\u007f"))  # the only control character that JSON leaves
    else:
        _print(rows, facts)
    if out is not None:
        with write_whole(out) as draft:
            draft.write_text(FORMATS[out.suffix.lower()](rows), encoding="utf-8")
        echo(f"{out}: Table I, rows: {len(rows)}", err=True)


@click.command()
@_FOLDERS
@click.option("--out", required=True, type=PATH, help="Picture to write: .png, .svg or .pdf.")
@click.option(
    "--panel", "panels", multiple=True, help="heatmap, bars, sizes or features; repeatable.  [all that apply]"
)
def plot(folders: Sequence[str], out: Path, panels: Sequence[str]) -> None:
    """Draw the population in DIR, or two side by side: class counts and shares, sizes, features."""
    from partitioning.pictures.plot import View, draw, save
    from partitioning.store.population import Population

    _check_file(out, _PICTURES)
    if len(folders) > 2:
        raise InputError(f"{len(folders)} populations are given: a picture has room for one, or two side by side")
    views = [View.of(Population.open(_local_folder(folder)), folder) for folder in folders]
    figure = draw(views, panels)
    with write_whole(out) as draft:
        save(figure, draft)
    echo(f"{out}: {' and '.join(f'{view.sizes.size} clients of {view.name}' for view in views)}")


@click.command()
@click.argument("folder", metavar="DIR")
@click.option("--site", "sites", multiple=True, help="Site whose samples are present; repeatable.  [all]")
def verify(folder: str, sites: tuple[str, ...]) -> None:
    """Check every byte of the population in DIR, a folder or a URI."""
    from partitioning.store.verification import verify as find_faults

    faults = find_faults(_local_folder(folder), sites or None)
    if faults:
        more = f" (and {len(faults) - 1} more, listed above)" if len(faults) > 1 else ""
        if more:
            for fault in faults:
                echo(fault)
        raise InputError(faults[0] + more)
    echo(f"{folder}: every checksum, count and sum is right")


def _local_folder(name: str) -> Path:
    # The folder of a path; a URI is fetched into the cache.
    from partitioning.store.remote import is_uri

    if not is_uri(name):
        return Path(name)
    from partitioning.cli.console import progress_bar
    from partitioning.store.fetching import fetch

    with progress_bar("fetching") as progress:
        return fetch(name, told=progress)


def _check_file(out: Path, endings: Sequence[str] | Mapping[str, object]) -> None:
    if out.suffix.lower() not in endings:
        raise InputError(f"out is {str(out)!r}: give a name that ends in {', '.join(endings)}")
    if out.is_dir():
        raise InputError(f"out is {str(out)!r}, which is a folder: give the name of a file")
    if not out.parent.is_dir():
        raise InputError(f"out is {str(out)!r}: {out.parent} is not a folder; make it first")


def _gather(name: str, population: "Population") -> tuple["Row", dict[str, dict[str, Any]]]:
    # The population's row of Table I, and groups of named values.
    from partitioning.measures import statistics
    from partitioning.measures.table_one import table_row

    manifest, counts, sites = population.manifest, population.class_counts, population.sites
    numbers = statistics.summarise(counts)
    by_site = [] if sites is None else sites.value_counts().to_pylist()
    return table_row(name, numbers), {
        "made": {"dataset": manifest.dataset, "scheme": manifest.scheme, "seed": manifest.seed},
        "parameters": manifest.parameters,
        "numbers": {
            **dataclasses.asdict(numbers),
            **dataclasses.asdict(statistics.measure_skew(counts)),
            "feature_c_scores": statistics.feature_scores(population.feature_counts),
            "train_clients": len(population.train_clients),
            "validation_clients": len(population.validation_clients),
            "test_clients": len(population.test_clients),
            "folds": manifest.splits.folds,
            "clients_by_site": {site["values"]: site["counts"] for site in by_site},
            "samples_left_out": manifest.counts.source_rows - manifest.counts.samples,
            "local_test_samples": int(population.test_sizes.sum()),
            "global_test_samples": manifest.counts.test_rows,
        },
        "report": manifest.report,
        "columns": {column.name: column.type for column in manifest.columns},
    }


def _to_record(facts: Mapping[str, Any]) -> dict[str, Any]:
    # Parameters also stand at the top, unless another value has the same name.
    groups = {name: facts[name] for name in ("parameters", "report", "columns")}
    return {**facts["parameters"], **facts["made"], **facts["numbers"], **groups}


def _print(rows: "Sequence[Row]", facts: Sequence[Mapping[str, Any]]) -> None:
    from rich.table import Table

    from partitioning.cli.console import Console
    from partitioning.measures.table_one import format_row

    console = Console(highlight=False)
    table = Table()
    for column in rows[0]:
        table.add_column(column, justify="left" if column == "Dataset" else "right")
    for row in rows:
        table.add_row(*format_row(row))
    console.print(table)
    for row, each in zip(rows, facts, strict=True):
        _print_groups(console, str(row["Dataset"]), each)


def _print_groups(console: "Console", title: str, facts: Mapping[str, Any]) -> None:
    from rich.table import Table

    numbers = {
        _TITLES.get(name, name.replace("_", " ")): value
        for name, value in facts["numbers"].items()
        if name not in _IN_ROW and value != {}
    }
    groups = [numbers, facts["report"], {**facts["made"], **facts["parameters"]}, facts["columns"]]
    table = Table(title=title, show_header=False, title_justify="left")
    for group in groups:
        for name, value in lines(group):
            table.add_row(name, value)
        table.add_section()
    console.print(table)


def lines(values: Mapping[str, Any], depth: int = 0) -> Iterator[tuple[str, str]]:
    """Yield a name and a value per line; the content of a mapping follows its name, indented."""
    for name, value in values.items():
        is_nested = isinstance(value, Mapping) and len(value) > 0
        yield "  " * depth + name, "" if is_nested else _format(value)
        if is_nested:
            yield from lines(value, depth + 1)


def _format(value: object) -> str:
    if isinstance(value, Mapping) or value is None:
        return "none"
    if isinstance(value, list | tuple):
        more = f", ... ({len(value)} in all)" if len(value) > _LISTED else ""
        return ", ".join(_format(each) for each in value[:_LISTED]) + more
    return f"{value:.6g}" if isinstance(value, float) else str(value)
