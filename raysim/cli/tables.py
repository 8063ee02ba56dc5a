"""Tables and lists for the terminal."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from rich.filesize import decimal
from rich.table import Table

from algorithms import Sample
from algorithms.names import ALGORITHMS
from raysim.common.errors import InputError, unknown
from raysim.config.own import FORM, MODEL_FORM, PARTS
from raysim.config.read import recipes
from raysim.data.catalogue import DATASET_FORMS, DATASETS
from raysim.models.build import BUILDER_ARGUMENTS, MODELS
from raysim.models.norm import RENORM_KEYS
from raysim.models.options import RENORM_PREFIX, ModelOptions
from raysim.models.renorm import RenormLimits
from raysim.reproduction.file import read_reproduction, reproductions
from raysim.store.result import AlgorithmResult

HEADINGS = {
    "test_accuracy": "test accuracy",
    "held_out_accuracy": "test accuracy, held-out clients",
    "validation_accuracy": "validation accuracy",
    "local_accuracy": "test accuracy, clients' own",
    "domains_accuracy": "test accuracy, mean of domains",
}

OTHER_METRICS = 4
"""Largest number of other metrics, without an accuracy."""


def results_table(results: Sequence[AlgorithmResult]) -> Table:
    """Return a row per algorithm: accuracies or other metrics, rounds, seconds and protocol bytes."""
    metrics = results[0].metrics if results else {}
    names = [name for name in HEADINGS if name in metrics] or list(metrics)[:OTHER_METRICS]
    table = Table()
    table.add_column("algorithm")
    for name in names:
        table.add_column(HEADINGS.get(name, name.replace("_", " ")), justify="right")
    for name in ("rounds", "seconds", "bytes up", "bytes down"):
        table.add_column(name, justify="right")
    for result in results:
        table.add_row(
            result.name,
            *(f"{result.metrics[name]:.4f}" for name in names),
            str(result.rounds),
            f"{result.seconds:.1f}",
            decimal(result.bytes_up),
            decimal(result.bytes_down),
        )
    return table


def listing(kind: str) -> Iterator[tuple[str, str]]:
    """Yield the names of a kind (`algorithms`, `models`, `datasets`, `recipes`, `reproductions`) and a line on each."""
    if kind == "algorithms":
        yield from (
            (name, (inspect.getdoc(function) or "").partition("\n")[0]) for name, function in ALGORITHMS.items()
        )
        yield "module:function", f"your own, from the file's folder or the working directory: {FORM}"
    elif kind == "models":
        yield from ((name, model.description) for name, model in MODELS.items())
        yield "module:Class", f"your own, from the file's folder or the working directory: {MODEL_FORM}"
    elif kind == "datasets":
        yield from ((name, data.description) for name, data in DATASETS.items())
        yield from DATASET_FORMS.items()
    else:
        for name, path in (recipes() if kind == "recipes" else reproductions()).items():
            alone = " [--full alone]" if kind == "reproductions" and read_reproduction(name).is_full_alone else ""
            yield name, path.read_text(encoding="utf-8").partition("\n")[0].lstrip("# ") + alone


def keys_of(kind: str, name: str) -> Iterator[tuple[str, str]]:
    """Yield the keys of an algorithm or a model with their defaults, and the docstring's line on each.

    Args:
        kind: "algorithms" or "models".
        name: name of an algorithm or a model.

    Raises:
        InputError: an unknown name, or a kind without keys.
    """
    if kind == "algorithms":
        if name not in ALGORITHMS:
            raise unknown(f"algorithm {name!r}", name, list(ALGORITHMS))
        yield from _keys(ALGORITHMS[name], PARTS)
        yield from _keys(Sample, (), {"by": "sampling"})
    elif kind == "models":
        if name not in MODELS:
            raise unknown(f"model {name!r}", name, list(MODELS))
        yield from _keys(MODELS[name].build, BUILDER_ARGUMENTS)
        yield from _keys(ModelOptions, RENORM_KEYS)
        yield from _keys(RenormLimits, (), {key.removeprefix(RENORM_PREFIX): key for key in RENORM_KEYS})
    else:
        raise InputError(
            f"raysim list {kind} {name}: must be without a name, because only algorithms and models have "
            "keys; remove the name"
        )


def _keys(
    function: Callable[..., Any], skip: Sequence[str] = (), names: Mapping[str, str] = MappingProxyType({})
) -> Iterator[tuple[str, str]]:
    """Yield `key = default` and the docstring's line for each parameter; `names` maps parameters to other keys."""
    lines = _arguments(inspect.getdoc(function) or "")
    for each in inspect.signature(function).parameters.values():
        if each.name not in skip:
            default = "" if each.default in (None, inspect.Parameter.empty) else f" = {json.dumps(each.default)}"
            yield f"{names.get(each.name, each.name)}{default}", lines[each.name]


def _arguments(docstring: str) -> dict[str, str]:
    """Return the line on each parameter in the "Args:" part of a docstring."""
    part = docstring.partition("\nArgs:\n")[2].partition("\n\n")[0]
    entries = re.findall(r"^    (\w[\w, ]*): (.+(?:\n     +.+)*)", part, re.MULTILINE)
    return {name: " ".join(text.split()) for names, text in entries for name in names.split(", ")}
