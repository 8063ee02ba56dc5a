"""The command `make`: its options are those of `make` and of every scheme."""

import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import click

from partitioning.common.errors import InputError
from partitioning.schemes.registry import SCHEMES, Parameter, parameters


def _options(command: Callable[..., None]) -> Callable[..., None]:
    # One option a parameter, however many schemes take it, in the order of the schemes.
    takers: dict[str, dict[str, Parameter]] = {}
    for scheme in SCHEMES:
        for name, parameter in parameters(scheme).items():
            takers.setdefault(name, {})[scheme] = parameter
    for name, schemes in reversed(takers.items()):
        # The most general type: a scheme that takes less says so itself.
        kinds = {str(parameter.file_type): parameter for parameter in schemes.values()}
        kind = _type(next(iter(schemes.values()))) if len(kinds) == 1 else _Json(name)
        click.option(f"--{name.replace('_', '-')}", name, type=kind, help=_help(schemes))(command)
    return command


def _help(schemes: Mapping[str, Parameter]) -> str:
    # What it means to each scheme that takes it; those to which it means the same stand together.
    meanings: dict[tuple[str, str], list[str]] = {}
    for scheme, parameter in schemes.items():
        default = "" if parameter.default in (None, inspect.Parameter.empty) else f"  [{_said(parameter.default)}]"
        meanings.setdefault((parameter.text, default), []).append(scheme)
    return "  ".join(
        f"{text[0].upper()}{text[1:].rstrip('.')}.  ({', '.join(names)}){default}"
        for (text, default), names in meanings.items()
    )


def _said(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _type(parameter: Parameter) -> click.ParamType[Any]:
    kind = parameter.file_type
    simple: dict[Any, click.ParamType[Any]] = {bool: click.BOOL, int: click.INT, float: click.FLOAT, str: click.STRING}
    return simple.get(kind, _Json(parameter.name))


class _Json(click.ParamType[Any]):
    # A number, a list or table as in JSON, or else a word, such as the name of a file.
    name = "value"

    def __init__(self, parameter: str) -> None:
        self._parameter = parameter

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        if value[:1] not in ("[", "{"):
            return _number(value)
        try:
            return json.loads(value)
        except ValueError as error:
            raise InputError(
                f"{self._parameter} is {value!r}, which is no list or table ({error}): give [0.1, 0.2] or "
                '{"name": 0.1}'
            ) from error


def _number(text: str) -> int | float | str:
    for kind in (int, float):
        with suppress(ValueError):
            return kind(text)
    return text


@click.command()
@click.argument("sources", nargs=-1, required=True, metavar="SOURCE...", type=click.Path(path_type=Path))
@click.option("--out", required=True, type=click.Path(path_type=Path), help="Folder to make.")
@click.option("--scheme", required=True, help=f"One of {', '.join(SCHEMES)}.")
@click.option("--clients", type=int, help="Number of clients, where the scheme does not find them in the data.")
@click.option("--label", default="label", show_default=True, help="Column with the label.")
@click.option(
    "--test", multiple=True, help="Source that is the global test set, or NAME=SOURCE, a domain's; repeatable."
)
@click.option("--test-clients", default=0.0, help="Clients held out for test: a share or a number.  [0]")
@click.option("--validation-clients", default=0.0, help="Clients held out for validation, likewise.  [0]")
@click.option("--folds", default=0, help="Folds for cross-validation by client, 3 or more, in place of those.  [0]")
@click.option("--stratify", is_flag=True, help="Give held-out groups, or folds, clients of like sizes.")
@click.option("--local-test", default=0.0, help="Share of each client's samples that is its test part.  [0]")
@click.option("--site", help="Column that says at which site a client is; no shard holds clients of two.")
@click.option(
    "--feature", "features", multiple=True, help="Column whose values are counted on each client; repeatable."
)
@click.option("--buckets", default=4, show_default=True, help="Quantiles into which a feature of numbers is counted.")
@click.option("--standardise", is_flag=True, help="Take each numeric column's mean and deviation on every client.")
@click.option("--index-only", is_flag=True, help="Write which rows each client has, and no samples.")
@click.option("--seed", default=0, show_default=True, help="Keys every random draw.")
@click.option("--memory", default="256MiB", show_default=True, help="Samples held at once: 500MB, 2GiB.")
@_options
def make(sources: tuple[Path, ...], out: Path, test: tuple[str, ...], memory: str, **options: Any) -> None:
    """Partition SOURCE into a population at --out.

    SOURCE is a .parquet, .arrow, .feather, .csv, .tsv or .npz file, or a folder of images by class. Several have the
    same columns, and each is a domain. The schemes that take an option are named behind it.
    """
    from rich.console import Console

    from partitioning.cli.progress import progress_bar
    from partitioning.cli.units import parse_bytes
    from partitioning.making.make import make as make_population
    from partitioning.measures import statistics
    from partitioning.sources.opening import open_source
    from partitioning.sources.source import read_columns
    from partitioning.store.writing import check_out

    check_out(out)  # before anything that takes time
    tests, size = _name_tests(test), parse_bytes("--memory", memory)
    given = {name: value for name, value in options.items() if value is not None}
    with progress_bar(Console(stderr=True)) as progress:
        population = make_population(
            [open_source(source) for source in sources],
            out,
            test={name: read_columns(open_source(path)) for name, path in tests.items()},
            memory=size,
            progress=progress,
            **given,
        )
    numbers = statistics.summarise(population.class_counts)
    click.echo(
        f"{out}: {numbers.clients} clients with {numbers.samples} samples of {numbers.classes} classes, "
        f"{numbers.min} to {numbers.max} a client, C-score {numbers.c_score:.2f}"
    )
    click.echo(f"next: partitioning inspect {out}   or   partitioning plot {out} --out population.png")


def _name_tests(given: Sequence[str]) -> dict[str | None, Path]:
    # A file is taken for what it is, whatever signs its name has.
    tests: dict[str | None, Path] = {}
    for text in given:
        name, separator, path = text.partition("=")
        named = bool(separator) and not Path(text).exists()
        key = name if named else None
        if named and not (name and path):
            raise InputError(f"--test is {text!r}: give SOURCE for the global test set, or NAME=SOURCE for a domain's")
        if key in tests:
            title = "the global test set" if key is None else f"the test set {key!r}"
            raise InputError(f"--test gives {title} twice: give each one once, as NAME=SOURCE for a domain")
        tests[key] = Path(path if named else text)
    return tests
