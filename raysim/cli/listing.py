"""Lists of names for experiment files, with a line on each; torch is not imported."""

import inspect
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby, takewhile
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pydantic_core import PydanticUndefined

import partitioning
from algorithms import DrawnDevices, Participation
from algorithms.names import ALGORITHMS, STAGES
from algorithms.rounds.timed import check_virtual_time
from algorithms.training.loss import LOSSES
from algorithms.training.optimiser_names import OPTIMISERS
from partitioning.common.paths import read_text
from partitioning.schemes.registry import parameters
from raysim.common.errors import InputError, check_known
from raysim.config.algorithm import AlgorithmTable, algorithms_of
from raysim.config.check import ConfigTable
from raysim.config.own import FORM, MODEL_FORM, PARTS
from raysim.config.ranges import Construction
from raysim.config.read import recipes
from raysim.config.reference import arguments, summary
from raysim.config.sampling import OortTable
from raysim.data.catalogue import DATASET_FORMS, DATASETS
from raysim.measures.metrics import METRICS, Metric
from raysim.models.build import BUILDER_ARGUMENTS, MODELS
from raysim.models.keys import RENORM_KEYS, RenormLimits
from raysim.models.options import RENORM_PREFIX, ModelOptions


def _reproductions() -> dict[str, str]:
    from raysim.reproduction.file import read_reproduction, reproductions

    return {
        name: _title(path) + (" [--full alone]" if read_reproduction(name).is_full_alone else "")
        for name, path in reproductions().items()
    }


def _metric(metric: Metric) -> str:
    text = (summary(metric.value) or summary(metric.sums)).removeprefix("Return ").removeprefix("the ")
    text = text.partition(", [n")[0].rstrip(".")
    return f"{text[:1].upper()}{text[1:]}; labels: {', '.join(metric.labels)}"


def _first_lines(things: Mapping[str, object], own: str = "", text: str = "") -> dict[str, str]:
    return {name: summary(thing) for name, thing in things.items()} | ({own: text} if own else {})


OWN = "your own, from the file's folder or the working directory:"

LISTS: Mapping[str, Callable[[], Mapping[str, str]]] = {
    "algorithms": lambda: _first_lines(ALGORITHMS, "module:function", f"{OWN} {FORM}"),
    "datasets": lambda: {name: data.line for name, data in DATASETS.items()} | dict(DATASET_FORMS),
    "losses": lambda: _first_lines(
        LOSSES,
        "module:function",
        "your own function of (outputs, y), which returns the loss of each sample, or one of the batch",
    ),
    "metrics": lambda: (
        {name: _metric(metric) for name, metric in METRICS.items()}
        | {"module:function": "your own function of (outputs, y), which returns a number for each sample to average"}
    ),
    "models": lambda: (
        {name: model.description for name, model in MODELS.items()} | {"module:Class": f"{OWN} {MODEL_FORM}"}
    ),
    "optimisers": lambda: {name: f"torch.optim.{kind}" for name, kind in OPTIMISERS.items()},
    "recipes": lambda: {name: _title(path) for name, path in recipes().items()},
    "reproductions": _reproductions,
    "schemes": lambda: _first_lines(partitioning.SCHEMES),
    "uplink": lambda: _first_lines(STAGES, "module:Class", "your own stage, a class derived from algorithms.Stage"),
}
"""Names of a kind, and a line on each."""

FAMILIES: Mapping[str, Sequence[str]] = {
    "Averaging and server rules": ("fedavg", "fedavgm", "fedadam", "fedyogi", "fedadagrad", "q-fedavg"),
    "Terms against client drift": ("fedprox", "scaffold", "fednova", "feddyn", "moon"),
    "Personal models": (
        *("fedper", "fedrep", "lg-fedavg", "fedbabu", "ditto", "apfl", "pfedme", "per-fedavg"),
        *("singleset", "ifca"),
    ),
    "Batch normalisation": ("fedbn", "silobn", "fixbn", "static-bn", "fedtan", "fedbs"),
    "Redistribution before aggregation": ("radfed", "radfedp", "radfedm", "radfeda", "radfedi"),
    "Rotating batches": ("fedsmb", "fedmmb"),
    "Asynchronous": ("fedasync", "fedbuff"),
    "Other topologies, and models of many sizes": ("hierfavg", "dpsgd", "sgp", "heterofl", "fjord"),
    "Baselines": ("centralized",),
}
"""Algorithms by what sets them apart, for a reader who looks for one."""


def sections(kind: str) -> Mapping[str, Sequence[str]]:
    """Return the names of a kind by heading: algorithms by family, reproductions by paper; others under none."""
    if kind == "algorithms":
        return {**FAMILIES, "Your own": ("module:function",)}
    names = list(LISTS[kind]())
    if kind != "reproductions":
        return {"": names}
    return {paper: list(own) for paper, own in groupby(names, key=lambda name: name.partition("-")[0])}


TRIES: Mapping[str, Mapping[str, Any]] = {
    "fraction": {"fraction": 0.5},
    "cohort": {"cohort": 1},
    "active": {"active": 0.5},
    "sampling": {"sampling": "size"},
    "candidates": {"candidates": 1},
    "over": {"over": 1.5},
    "deadline": {"deadline": 1.0},
    "late": {"deadline": 1.0, "late": "stale"},
    "oort": {"sampling": "oort"},
}
"""Settings that show whether an algorithm takes a common key."""

PERMISSIVE: Mapping[str, Any] = {"aggregate_every": 1, "start": "equal"}
"""Own keys of algorithms that then allow more common keys than by default."""


def keys_of(kind: str, name: str) -> Iterator[tuple[str, str]]:
    """Yield the keys of a named thing of a kind, with their defaults and the docstring's lines.

    Args:
        kind: "algorithms", "losses", "models", "schemes" or "uplink".
        name: name of one of these.

    Raises:
        InputError: an unknown name, or a kind without keys.
    """
    if kind == "algorithms":
        check_known(f"algorithm {name!r}", name, ALGORITHMS)
        refused = _refused_keys(name)
        common = ("label", "sampling", "candidates", "over", "deadline", "late", "joins")
        yield from _keys(ALGORITHMS[name], PARTS)
        yield from _keys(Participation, ("by", "reporting", *refused))
        yield from _table_keys(AlgorithmTable, [key for key in common if key not in refused])
        if "oort" not in refused:
            yield from _table_keys(OortTable, tuple(OortTable.model_fields), "oort.")
    elif kind == "models":
        check_known(f"model {name!r}", name, MODELS)
        yield from _keys(MODELS[name].build, BUILDER_ARGUMENTS)
        yield from _keys(ModelOptions, RENORM_KEYS)
        yield from _keys(RenormLimits, (), {key.removeprefix(RENORM_PREFIX): key for key in RENORM_KEYS})
    elif kind == "losses":
        check_known(f"loss {name!r}", name, LOSSES)
        yield from _keys(LOSSES[name])
    elif kind == "schemes":
        check_known(f"scheme {name!r}", name, partitioning.SCHEMES)
        for each in parameters(name).values():
            yield f"{each.name}{_default(each.default)}", each.text
    elif kind == "uplink":
        check_known(f"stage {name!r}", name, STAGES)
        yield from _keys(STAGES[name])
    else:
        raise InputError(
            f"raysim list {kind} {name}: must be without a name, because only algorithms, losses, models, schemes "
            "and uplink have keys; remove the name"
        )


def _refused_keys(algorithm: str) -> list[str]:
    parameters = inspect.signature(ALGORITHMS[algorithm]).parameters
    own = {key: value for key, value in PERMISSIVE.items() if key in parameters}

    def build(keys: Mapping[str, Any]) -> None:
        (table,) = algorithms_of({"algorithm": {"name": algorithm, **keys, **own}})
        check_virtual_time(table.compose(), DrawnDevices())

    construction = Construction(build)
    return [key for key, keys in TRIES.items() if not construction.builds(keys)]


def recipe(name: str) -> str:
    """Return the text of a recipe or of a reproduction's file.

    Raises:
        InputError: there is none of this name.
    """
    found = recipes()
    if name not in found:
        from raysim.reproduction.file import reproductions

        found |= reproductions()
    check_known(f"recipe {name!r}", name, found)
    return read_text(found[name])


def _keys(
    function: Callable[..., Any], skip: Sequence[str] = (), names: Mapping[str, str] = MappingProxyType({})
) -> Iterator[tuple[str, str]]:
    """Yield `key = default` and the docstring's line for each parameter; `names` maps parameters to other keys."""
    lines = arguments(function)
    for each in inspect.signature(function).parameters.values():
        if each.name not in skip:
            yield f"{names.get(each.name, each.name)}{_default(each.default)}", lines.get(each.name, "")


def _table_keys(table: type[ConfigTable], keys: Sequence[str], above: str = "") -> Iterator[tuple[str, str]]:
    """Yield `key = default` and the text of some keys of a table of the experiment file."""
    for key in keys:
        field = table.model_fields[key]
        default = None if field.default is PydanticUndefined else field.default
        yield f"{above}{key}{_default(default)}", " ".join((field.description or "").split())


def _default(value: object) -> str:
    return "" if value in (None, inspect.Parameter.empty) else f" = {json.dumps(value, default=str)}"


def _title(path: Path) -> str:
    """Return the first paragraph of a file's leading comment."""
    lines = (line.lstrip("# ") for line in read_text(path).splitlines())
    return " ".join(takewhile(bool, lines))
