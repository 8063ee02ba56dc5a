"""Every key of the experiment file: type with its true range, default and meaning. Torch is not imported."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache, cached_property
from types import MappingProxyType
from typing import Any

from pydantic_core import PydanticUndefined

import algorithms
from algorithms import Compute, Local, Participation
from algorithms.names import ALGORITHMS, SERVERS, STAGES
from algorithms.options.aggregation import AGGREGATES
from algorithms.training.loss import LOSSES, CrossEntropy
from partitioning.schemes.registry import SCHEMES, parameters
from raysim.config import constructions
from raysim.config.algorithm import INNER, AlgorithmTable, ServerTable, local_table
from raysim.config.check import ConfigTable, table_of
from raysim.config.experiment import Experiment, TopLevelKeys
from raysim.config.kinds import choices, kind, shown, table_in
from raysim.config.options import OptionTable, option_tables
from raysim.config.ranges import Construction
from raysim.config.sampling import OortTable
from raysim.config.tables import DevicesTable, PartitionTable, partition_table
from raysim.models.build import MODELS
from raysim.models.options import ModelOptions

GIVEN = ("participation", "local", "server")
"""Parameters of a named algorithm that other tables of the file set."""

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
    def has_default(self) -> bool:
        """Whether the key has a value if the file gives none."""
        return self.default is not None and self.default is not PydanticUndefined

    @property
    def shown_default(self) -> str:
        """Default as TOML would have it; "required" if a key must be given, and a dash if none is set."""
        return shown(self.default)


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
    tables = {name: table for name, field in Experiment.model_fields.items() if (table := table_in(field.annotation))}
    yield _group(TOP, TopLevelKeys, constructions.typed(TopLevelKeys), above="")
    for name, table in tables.items():
        if name == "algorithm":
            yield from _algorithm()
        elif issubclass(table, OptionTable):
            yield _group(name, table, constructions.option(table))
        elif name not in TopLevelKeys.model_fields:
            yield _group(name, table, _trial(table), _texts(name))
            yield from _things(name)
            yield from _inner(name, table)


def is_bound(key: str, value: float) -> bool:
    """Return whether a key, of an algorithm if it has no table, allows nothing on one side of a value."""
    return value in _bounds(key)


@cache
def _bounds(key: str) -> frozenset[float]:
    kinds = [each.kind for group in groups() for each in group.keys if each.path in (key, f"algorithm.{key}")]
    return frozenset(float(bound) for kind in kinds for bound in re.findall(r"[≥≤] (-?[\d.e-]+)(?![\d^])", kind))


def _trial(table: type[ConfigTable]) -> Construction:
    if table is DevicesTable:
        return constructions.devices()
    return constructions.model() if table is Experiment.model_fields["model"].annotation else constructions.typed(table)


def _texts(table: str) -> Mapping[str, str]:
    if table == "model":
        return arguments(ModelOptions)
    return arguments(algorithms.DrawnDevices) if table == "devices" else NOTHING


def _inner(name: str, table: type[ConfigTable]) -> Iterator[Group]:
    """Yield the tables inside a table."""
    for key, field in table.model_fields.items():
        inner = table_in(field.annotation)
        if inner is not None and key != "chain":
            if issubclass(table, OptionTable) and key in table.around:
                yield _group(f"{name}.{key}", inner, constructions.inside(table, key))
            else:
                yield _group(f"{name}.{key}", inner, constructions.typed(inner))


def _things(table: str) -> Iterator[Group]:
    """Yield the keys that a scheme or a model adds to its table."""
    if table == "partition":
        for scheme, function in SCHEMES.items():
            divided = partition_table(scheme)
            texts = {name: each.text for name, each in parameters(scheme).items()}
            yield _added(
                "partition.scheme", scheme, function, divided, constructions.typed(divided), texts, PartitionTable
            )
    elif table == "model":
        for name, model in MODELS.items():
            given = tuple(key for key in inspect.signature(model.build).parameters if key not in model.parameters)
            own = table_of(model.build, given, ConfigTable)
            added = _added("model.name", name, model.build, own, constructions.of_model(name))
            yield replace(added, summary=model.description)


def _algorithm() -> Iterator[Group]:
    """Yield the tables of an algorithm: its own, `[local]`, `[server]` and those of its options."""
    texts = arguments(Participation) | {"sampling": arguments(Participation)["by"]}
    yield _group("algorithm", AlgorithmTable, constructions.common(), texts, (*INNER, "oort"))
    yield _group("algorithm.oort", OortTable, constructions.oort())
    for name, function in ALGORITHMS.items():
        own = table_of(function, GIVEN, ConfigTable)
        named = [{key: each} for key, field in own.model_fields.items() for each in choices(field.annotation)]
        yield _added("algorithm.name", name, function, own, constructions.of_algorithm(name, named))
    texts = arguments(Local) | arguments(Compute) | arguments(CrossEntropy)
    yield _group("local", local_table("cross-entropy"), constructions.local("cross-entropy"), texts)
    for name, loss in LOSSES.items():
        if loss is not CrossEntropy:
            yield _added("local.loss", name, loss, table_of(loss, (), ConfigTable), constructions.local(name))
    yield _group("server", ServerTable, constructions.typed(ServerTable))
    for name, rule in SERVERS.items():
        yield _added("server.rule", name, rule, table_of(rule, (), ConfigTable), constructions.server(name))
    for name, aggregate in AGGREGATES.items():
        own = table_of(aggregate, (), ConfigTable)
        yield _added("server.aggregate", name, aggregate, own, constructions.aggregate(name))
    for option, table in option_tables(AlgorithmTable).items():
        yield _group(option, table, constructions.option(table))
        if "chain" in table.model_fields:
            for name, stage in STAGES.items():
                own = table_of(stage, (), ConfigTable)
                yield _added(f"{option}.chain", name, stage, own, constructions.stage(name, stage))
        yield from _inner(option, table)


def _group(
    name: str,
    table: type[ConfigTable],
    construction: Construction,
    texts: Mapping[str, str] = NOTHING,
    skip: Iterable[str] = (),
    above: str | None = None,
) -> Group:
    return Group(name, tuple(keys_of(table, texts, construction, f"{name}." if above is None else above, skip)))


def _added(
    key: str,
    name: str,
    function: Callable[..., Any],
    own: type[ConfigTable],
    construction: Construction,
    texts: Mapping[str, str] = NOTHING,
    base: type[ConfigTable] = ConfigTable,
) -> Group:
    """Return the keys that a named function adds to the table of `key`, beyond those of `base`."""
    path = f"{key}." if key.endswith(".chain") else f"{key.partition('.')[0]}."
    keys = keys_of(own, texts or arguments(function), construction, path, base.model_fields)
    return Group(key.partition(".")[0], tuple(keys), f'{key} = "{name}"', summary(function))


def keys_of(
    table: type[ConfigTable], texts: Mapping[str, str], construction: Construction, above: str, skip: Iterable[str] = ()
) -> Iterator[Key]:
    """Yield the keys of a table.

    Args:
        table: typed table.
        texts: meanings of keys that the table does not describe.
        construction: construction of the part that checks the keys.
        above: beginning of their paths.
        skip: keys to leave out.
    """
    for name, field in table.model_fields.items():
        if name not in skip:
            meaning = sentence(field.description or texts.get(name, ""))
            default = field.get_default(call_default_factory=True)
            yield Key(above + name, field.annotation, tuple(field.metadata), default, meaning, construction)


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
