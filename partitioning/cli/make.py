"""The command `make`, with the options of the function `make` and of every scheme."""

from __future__ import annotations

import inspect
import json
import os.path
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from partitioning.cli.paths import PATH
from partitioning.cli.terminal import echo
from partitioning.common.errors import InputError, listing
from partitioning.common.paths import check_path
from partitioning.common.text import word

if TYPE_CHECKING:  # It imports numpy.
    from partitioning.schemes.registry import Parameter

_SIMPLE = (bool, int, float, str)
_UNITS = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
_AMOUNT = re.compile(r"(\d{1,18}(?:\.\d+)?)\s*([A-Za-z]+)")


class _MakeCommand(click.Command):
    """Command with the options of every scheme; they are made when they are first needed, for schemes import numpy."""

    is_complete = False

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return all parameters."""
        if not self.is_complete:
            source, out, *common = self.params
            scheme, *own = _scheme_options()
            self.params = [source, out, scheme, *common, *own]
            self.is_complete = True
        return super().get_params(ctx)


def _scheme_options() -> list[click.Option]:
    # One option per parameter, in the order of the schemes; several schemes may share it.
    from partitioning.schemes.registry import SCHEMES, parameters

    takers: dict[str, dict[str, Parameter]] = {}
    for scheme in SCHEMES:
        for name, parameter in parameters(scheme).items():
            takers.setdefault(name, {})[scheme] = parameter
    options = [click.Option(["--scheme"], required=True, help=f"One of {', '.join(SCHEMES)}.")]
    for name, schemes in takers.items():
        # Take the most general type; each scheme then checks the value itself.
        kind, *others = {parameter.file_type for parameter in schemes.values()}
        is_simple = kind in _SIMPLE and not others
        given: dict[str, Any] = {"type": kind} if is_simple else {"metavar": "VALUE", "callback": _parse_value}
        options.append(click.Option([f"--{name.replace('_', '-')}", name], help=_help(schemes), **given))
    return options


def _help(schemes: Mapping[str, Parameter]) -> str:
    # Its meaning to each scheme; schemes with equal meanings stand together.
    meanings: dict[tuple[str, str], list[str]] = {}
    for scheme, parameter in schemes.items():
        default = "" if parameter.default in (None, inspect.Parameter.empty) else f"  [{_show(parameter.default)}]"
        meanings.setdefault((parameter.text, default), []).append(scheme)
    return "; or: ".join(
        f"{text[0].upper()}{text[1:].rstrip('.')} ({', '.join(names)}){default}"
        for (text, default), names in meanings.items()
    )


def _show(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _parse_value(context: click.Context, option: click.Parameter, value: Any) -> Any:
    # A number, a JSON list or table, or else a string, such as a file name.
    if not isinstance(value, str):
        return value
    if value[:1] not in ("[", "{"):
        return _number(value)
    try:
        return json.loads(value)
    except ValueError as error:
        raise InputError(
            f'{option.name} is {value!r}, which is no list or table ({error}): give [0.1, 0.2] or {{"name": 0.1}}'
        ) from error


def _number(text: str) -> int | float | str:
    for kind in (int, float):
        with suppress(ValueError):
            return kind(text)
    return text


def _share_or_column(text: str) -> float | str:
    with suppress(ValueError):
        return float(text)
    return text


@click.command(cls=_MakeCommand)
@click.argument("sources", nargs=-1, required=True, metavar="SOURCE...", type=PATH)
@click.option("--out", required=True, type=PATH, help="Folder to create.")
@click.option("--clients", type=int, help="Number of clients; omit it if the scheme finds the clients in the data.")
@click.option("--label", default="label", show_default=True, help="Label column.")
@click.option("--by", help="Column whose values stand for the classes, if labels are numbers or images.")
@click.option("--test", multiple=True, help="Global test set, or NAME=SOURCE for the test set of a domain; repeatable.")
@click.option("--test-clients", default=0.0, help="Clients held out for test, a share or a number.  [0]")
@click.option("--validation-clients", default=0.0, help="Clients held out for validation, a share or a number.  [0]")
@click.option("--folds", default=0, help="Folds of clients (3 or more) instead of held-out clients.  [0]")
@click.option("--stratify", is_flag=True, help="Give held-out groups or folds clients of similar sizes.")
@click.option(
    "--local-test",
    type=_share_or_column,
    metavar="SHARE OR COLUMN",
    default=0.0,
    help="Share of each client's samples in its own test part, or a column of train and test.  [0]",
)
@click.option("--site", help="Column with the site of a client; no shard holds clients of two sites.")
@click.option("--feature", "features", multiple=True, help="Column to count on each client; repeatable.")
@click.option("--buckets", default=4, show_default=True, help="Quantile buckets of a numeric feature.")
@click.option(
    "--standardise", is_flag=True, help="Store mean and standard deviation of numeric columns on every client."
)
@click.option("--missing", multiple=True, help="Column that may have missing values; repeatable.")
@click.option("--index-only", is_flag=True, help="Write only the row numbers of each client, without samples.")
@click.option("--seed", default=0, show_default=True, help="Key of every random draw.")
@click.option(
    "--memory",
    default="256MiB",
    show_default=True,
    help="Limit of the samples held at once, for example 500MB or 2GiB.",
)
def make(sources: tuple[Path, ...], out: Path, test: tuple[str, ...], memory: str, **options: Any) -> None:
    """Partition SOURCE into a population at --out.

    SOURCE is a .parquet, .arrow, .feather, .csv, .tsv or .npz file, or a folder of images by class. Several sources
    need equal columns; each is a domain. Options of schemes name their schemes in parentheses.
    """
    from partitioning.cli.console import progress_bar
    from partitioning.making.make import make as make_population
    from partitioning.measures import statistics
    from partitioning.sources.opening import open_source
    from partitioning.sources.source import read_columns
    from partitioning.store.writing import check_out

    check_out(out)  # before any slow step
    tests, size = _name_tests(test), parse_bytes(memory)
    given = {name: value for name, value in options.items() if value is not None}
    with progress_bar("partitioning") as progress:
        population = make_population(
            [open_source(source) for source in sources],
            out,
            test={name: read_columns(open_source(path)) for name, path in tests.items()},
            memory=size,
            progress=progress,
            **given,
        )
    numbers = statistics.summarise(population.class_counts)
    echo(
        f"{out}: {numbers.clients} clients with {numbers.samples} samples of {numbers.classes} classes, "
        f"{numbers.min} to {numbers.max} per client, C-score {numbers.c_score:.2f}"
    )
    echo(f"next: partitioning inspect {word(out)}   or   partitioning plot {word(out)} --out population.png")


def parse_bytes(text: str) -> int:
    """Return the bytes of an amount of memory such as "256MB" or "1.5 GiB"."""
    amount = _AMOUNT.fullmatch(text.strip())
    factor = {unit.lower(): factor for unit, factor in _UNITS.items()}.get(amount[2].lower()) if amount else None
    size = int(float(amount[1]) * factor) if amount and factor else 0
    if size < 1:
        raise InputError(f"--memory is {text!r}: give a number above 0 and one of {listing(_UNITS)}, as 256MB")
    return size


def _name_tests(given: Sequence[str]) -> dict[str | None, Path]:
    # An existing path is a source, even if its name contains '='.
    tests: dict[str | None, Path] = {}
    for text in given:
        name, separator, path = text.partition("=")
        named = bool(separator) and not os.path.exists(text)  # noqa: PTH110 - Path's raises errors
        key = name if named else None
        if named and not (name and path):
            raise InputError(f"--test is {text!r}: give SOURCE for the global test set, or NAME=SOURCE for a domain's")
        if key in tests:
            title = "the global test set" if key is None else f"the test set {key!r}"
            raise InputError(f"--test gives {title} twice: give each one once, as NAME=SOURCE for a domain")
        tests[key] = check_path("--test", path if named else text)
    return tests
