"""Every key of the experiment file: type with its true range, default and meaning. Torch is not imported."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from types import MappingProxyType
from typing import Any

from pydantic_core import PydanticUndefined

from algorithms import Compute, Local
from algorithms.names import ALGORITHMS, SERVERS, STAGES
from algorithms.options.aggregation import AGGREGATES
from algorithms.training.loss import LOSSES, CrossEntropy
from partitioning.schemes.registry import SCHEMES
from raysim.config.algorithm import INNER, AlgorithmTable, algorithms_of
from raysim.config.bounds import LARGEST_WHOLE
from raysim.config.check import ConfigTable, checked, table_in, table_of
from raysim.config.experiment import Experiment, TopLevelKeys
from raysim.config.kinds import choices, kind
from raysim.config.local import local_table
from raysim.config.model import ModelTable, model_of
from raysim.config.options import OptionTable, option_tables
from raysim.config.own import PARTS
from raysim.config.ranges import Construction
from raysim.config.sampling import OortTable
from raysim.config.server import ServerTable
from raysim.config.tables import DevicesTable, PartitionTable, devices_of, partition_table
from raysim.config.uplink import UplinkTable
from raysim.models.build import BUILDER_ARGUMENTS, MODELS

NEEDED: Mapping[str, Any] = {"alpha": 0.5, "byzantine": 0, "norm": 1.0, "std": 1.0, "share": 0.5, "levels": 1}
"""Values of keys without a default, beside which the other keys are tried."""

OF_ALGORITHM: Sequence[Mapping[str, Any]] = ({}, {"deadline": 1.0}, {"sampling": "poisson"})
OF_LOCAL: Sequence[Mapping[str, Any]] = ({}, {"optimizer": "adam"}, {"lr_decay": 0.5})
OF_MODEL: Sequence[Mapping[str, Any]] = (
    {},
    {"norm": "group"},
    # The ends bound the start, and the start bounds the ends: as wide as they go.
    {"norm": "batch-renorm", "renorm_start": 0, "renorm_r_end": LARGEST_WHOLE, "renorm_d_end": LARGEST_WHOLE},
    {"init": "normal"},
    {"train": "lora"},
)
"""Keys to try the others beside, because some are taken, or checked, only beside these."""

NOTHING: Mapping[str, str] = MappingProxyType({})

TOP = "top"
"""Name of the keys that stand outside the tables."""


@dataclass(frozen=True)
class Key:
    """Key of the experiment file.

    Args:
        path: name with its table, such as `local.lr`.
        annotation: type.
        metadata: bounds that the type lacks.
        default: default value; None without one.
        meaning: sentence about the key.
        construction: construction of the part that checks it.
    """

    path: str
    annotation: Any
    metadata: tuple[Any, ...]
    default: Any
    meaning: str
    construction: Construction

    @property
    def name(self) -> str:
        """Name in the table."""
        return self.path.rpartition(".")[2]

    @cached_property
    def kind(self) -> str:
        """Type with the true range of its numbers."""
        return kind(self.annotation, self.metadata, self.construction.tests(self.name))

    @property
    def shown_default(self) -> str:
        """Default as TOML would have it; "required" if a key must be given, and a dash if none is set."""
        if self.default is PydanticUndefined:
            return "required"
        if self.default is None:
            return "–"
        return "{}" if isinstance(self.default, ConfigTable) else json.dumps(self.default, default=str)


@dataclass(frozen=True)
class Group:
    """Keys of a table, or those that a named thing adds to it.

    Args:
        table: name of the table.
        keys: its keys.
        thing: what sets these keys, such as `algorithm.name = "fedprox"`; "" for the table itself.
        summary: sentence about the thing.
    """

    table: str
    keys: tuple[Key, ...]
    thing: str = ""
    summary: str = ""

    @property
    def name(self) -> str:
        """Name of the thing, such as `fedprox`; "" for the table itself."""
        return self.thing.partition(' = "')[2].rstrip('"')

    @property
    def path(self) -> str:
        """Name of the thing behind its table, such as `algorithm.fedprox`; the table's own without a thing."""
        return f"{self.table}.{self.name}" if self.thing else self.table


def groups() -> Iterator[Group]:
    """Yield the keys of every table of an experiment, in the order of the file."""
    yield group_of(TOP, TopLevelKeys, _typed(TopLevelKeys))
    for name, field in Experiment.model_fields.items():
        if name == "algorithm":
            yield from _algorithm()
        elif (table := table_in(field.annotation)) is not None:
            yield from _table(name, table)


def is_bound(key: str, value: float) -> bool:
    """Return whether a key, of an algorithm if it has no table, allows nothing on one side of a value."""
    return value in _bounds(key)


@cache
def _bounds(key: str) -> frozenset[float]:
    kinds = [each.kind for group in groups() for each in group.keys if each.path in (key, f"algorithm.{key}")]
    return frozenset(float(bound) for kind in kinds for bound in re.findall(r"[≥≤] (-?[\d.e-]+)(?![\d^])", kind))


def _algorithm() -> Iterator[Group]:
    """Yield the tables of an algorithm: its own, `[local]`, `[server]` and those of its options."""
    yield group_of("algorithm", AlgorithmTable, _part("algorithm", {}, OF_ALGORITHM), skip=(*INNER, "oort"))
    oort = Construction(lambda keys: algorithms_of({"algorithm": {"sampling": "oort", "oort": dict(keys)}}))
    yield group_of("algorithm.oort", OortTable, oort)
    for name, function in ALGORITHMS.items():
        own = table_of(function, PARTS, ConfigTable)
        beside = [{}, *({key: each} for key, field in own.model_fields.items() for each in choices(field.annotation))]
        # Shares are as many as levels, so a single one is tried with a single level.
        beside += [{"levels": [1.0]}] if "shares" in own.model_fields else []
        yield _added("algorithm.name", name, function, own, _part("algorithm", {"name": name}, beside))
    texts = arguments(Local) | arguments(Compute) | arguments(CrossEntropy)
    for name, loss in LOSSES.items():
        construction = _part("local", {"loss": name}, OF_LOCAL)
        if loss is CrossEntropy:
            yield group_of("local", local_table(name), construction, texts)
        else:
            yield _added("local.loss", name, loss, table_of(loss, (), ConfigTable), construction)
    yield group_of("server", ServerTable, _typed(ServerTable))
    kinds: Mapping[str, Mapping[str, Callable[..., Any]]] = {"rule": SERVERS, "aggregate": AGGREGATES}
    for key, functions in kinds.items():
        for name, rule in functions.items():
            own = table_of(rule, (), ConfigTable)
            method = "fedasync" if name == "weighted-mix" else "fedavg"  # It is for single arrivals.
            construction = _part("server", {key: name, **_needed(own)}, method=method)
            yield _added(f"server.{key}", name, rule, own, construction)
    for name, table in option_tables(AlgorithmTable).items():
        yield from _table(name, table)


def _table(name: str, table: type[ConfigTable]) -> Iterator[Group]:
    """Yield the keys of a table, those that a named thing adds to it, and those of the tables inside."""
    yield group_of(name, table, _construction(table))
    if table is PartitionTable:
        for scheme, function in SCHEMES.items():
            divided, common = partition_table(scheme), PartitionTable.model_fields
            yield _added("partition.scheme", scheme, function, divided, _typed(divided), common)
    elif table is ModelTable:
        for model_name, model in MODELS.items():
            own = table_of(model.build, BUILDER_ARGUMENTS, ConfigTable)
            added = _added("model.name", model_name, model.build, own, _model({"name": model_name}))
            yield replace(added, summary=model.description)
    elif "chain" in table.model_fields:
        for stage_name, stage in STAGES.items():
            own = table_of(stage, (), ConfigTable)
            yield _added(f"{name}.chain", stage_name, stage, own, _stage({"name": stage_name, **_needed(own)}))
    for key, field in table.model_fields.items():
        if (inner := table_in(field.annotation)) is not None and key != "chain":
            yield group_of(f"{name}.{key}", inner, _inside(table, key, inner))


def _typed(table: type[ConfigTable]) -> Construction:
    """Return the construction of a typed table, which knows all bounds; the keys that must be given are names."""
    needed = {name: "x" for name, field in table.model_fields.items() if field.is_required()}
    return Construction(lambda keys: checked(table, {**needed, **keys}, ""))


def _construction(table: type[ConfigTable]) -> Construction:
    """Return the construction of a table of the file."""
    if issubclass(table, OptionTable):
        return Construction(lambda keys: table.over("option", keys, {}), table.complete)
    if table is DevicesTable:
        return Construction(lambda keys: devices_of(dict(keys)), ({}, {"availability": "day-night"}))
    return _model({"name": "mlp"}, OF_MODEL) if table is ModelTable else _typed(table)


def _inside(table: type[ConfigTable], key: str, inner: type[ConfigTable]) -> Construction:
    """Return the construction of the table `inner` at a key of another table."""
    if not (issubclass(table, OptionTable) and key in table.around):
        return _typed(inner)
    around = table.around[key]
    return Construction(lambda keys: table.over("option", {**around, key: {**around.get(key, {}), **keys}}, {}))


def _part(
    table: str, around: Mapping[str, Any], beside: Sequence[Mapping[str, Any]] = ({},), method: str = "fedavg"
) -> Construction:
    """Return the construction of an algorithm from the keys of one table, with the keys `around` them."""
    return Construction(lambda keys: algorithms_of({"algorithm": {"name": method}, table: {**around, **keys}}), beside)


def _model(around: Mapping[str, Any], beside: Sequence[Mapping[str, Any]] = ({},)) -> Construction:
    return Construction(lambda keys: model_of({**around, **keys}), beside)


def _stage(around: Mapping[str, Any]) -> Construction:
    return Construction(lambda keys: UplinkTable.over("uplink", {"chain": [{**around, **keys}]}, {}))


def _needed(table: type[ConfigTable]) -> dict[str, Any]:
    """Return values of the keys without a default."""
    return {key: NEEDED[key] for key, field in table.model_fields.items() if field.is_required()}


def group_of(
    name: str,
    table: type[ConfigTable],
    construction: Construction,
    texts: Mapping[str, str] = NOTHING,
    skip: Iterable[str] = (),
) -> Group:
    """Return the keys of a table.

    Args:
        name: name of the table, the beginning of the keys' paths.
        table: typed table.
        construction: construction of the part that checks the keys.
        texts: meanings of keys that the table does not describe.
        skip: keys to leave out.
    """
    above = "" if name == TOP else f"{name}."
    keys = (
        Key(
            above + key,
            field.annotation,
            tuple(field.metadata),
            field.get_default(call_default_factory=True),
            sentence(field.description or texts.get(key, "")),
            construction,
        )
        for key, field in table.model_fields.items()
        if key not in skip
    )
    return Group(name, tuple(keys))


def _added(
    key: str,
    name: str,
    function: Callable[..., Any],
    own: type[ConfigTable],
    construction: Construction,
    skip: Iterable[str] = (),
) -> Group:
    """Return the keys that a named function adds to the table of `key`."""
    table = key.partition(".")[0]
    above = key if key.endswith(".chain") else table
    group = group_of(above, own, construction, arguments(function), skip)
    return replace(group, table=table, thing=f'{key} = "{name}"', summary=summary(function))


def arguments(subject: Callable[..., Any]) -> dict[str, str]:
    """Return the lines below "Args:" of a docstring, by parameter; a class has those of its bases, too."""
    bases = reversed(subject.__mro__) if inspect.isclass(subject) else (subject,)
    texts: dict[str, str] = {}
    for each in bases:
        part = inspect.cleandoc(each.__doc__ or "").partition("\nArgs:\n")[2].partition("\n\n")[0]
        for names, text in re.findall(r"^    (\w[\w, ]*): (.+(?:\n     +.+)*)", part, re.MULTILINE):
            texts |= dict.fromkeys(names.split(", "), " ".join(text.split()))
    return texts


def sentence(text: str) -> str:
    """Return a text with a capital letter, unless it begins with a symbol such as p_k or s, and a full stop."""
    text = " ".join(text.split())
    is_symbol = re.match(r"[a-z]_\w|[b-z]\b", text)
    first = text[:1] if is_symbol else text[:1].upper()
    return text and first + text[1:] + ("" if text.endswith(".") else ".")


def summary(subject: Any) -> str:
    """Return the first sentence of a docstring."""
    return (inspect.getdoc(subject) or "").partition("\n")[0]
