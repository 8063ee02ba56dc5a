"""The experiment, resolved: every table checked, every default written out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, fields
from functools import cache
from inspect import signature
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

import partitioning
from algorithms import Algorithm, Compute, Local, Sample
from algorithms.named import ALGORITHMS, SERVERS
from partitioning.schemes import parameters, takes
from raysim.config.check import Table, checked, known, table_of, table_with
from raysim.errors import InputError, one_input_error
from raysim.models import MODELS

Metric = Literal["accuracy", "loss", "macro_f1", "weighted_f1", "auc"]
Measure = Literal["dc", "concordance", "dl", "bn"]
Target = Literal["test", "held_out", "validation", "local", "domains"]

CLIENTS = 10
"""How many clients a partition has where the file does not say and the data do not decide."""


def _once(names: tuple[str, ...]) -> tuple[str, ...]:
    if len(set(names)) < len(names):
        raise ValueError("should name each only once")
    return names


class Data(Table):
    """`[data]`: which samples there are, or a population that was made before."""

    dataset: str | None = None
    root: str | None = None
    label: str | None = None
    test: str | Annotated[float, Field(ge=0, lt=1)] = 0.0
    population: str | None = None
    fold: Annotated[int, Field(ge=0)] | None = None


class Partition(Table):
    """`[partition]`: how the samples become clients, and which `fold` is tested; the scheme's own keys stand beside."""

    scheme: str = "iid"
    clients: Annotated[int, Field(ge=1)] | None = None
    test_clients: Annotated[int, Field(ge=0)] | Annotated[float, Field(gt=0, lt=1)] = 0
    validation_clients: Annotated[int, Field(ge=0)] | Annotated[float, Field(gt=0, lt=1)] = 0
    folds: Annotated[int, Field(ge=0)] = 0
    fold: Annotated[int, Field(ge=0)] | None = None
    stratify: bool = False
    local_test: Annotated[float, Field(ge=0, lt=1)] = 0
    features: tuple[str, ...] = ()
    buckets: Annotated[int, Field(ge=2)] = 4


class Model(Table):
    """`[model]`: a model by name; its own keys stand beside it."""

    name: str = "mlp"


class Server(Table):
    """`[server]`: a server rule by name; its own keys stand beside it."""

    rule: str = "assign"


class AlgorithmTable(Table):
    """`[algorithm]`: its own keys stand beside these, with the `[local]` and `[server]` that hold for it."""

    name: str = "fedavg"
    cohort: int | None = None
    fraction: float | None = None
    sampling: Literal["uniform", "size"] = "uniform"
    local: Table = Table()
    server: Server = Server()

    def compose(self) -> Algorithm:
        """The algorithm as a value.

        Raises:
            InputError: a number is out of range, or the parts make no sense together.
        """
        with one_input_error():
            return ALGORITHMS[self.name](
                Sample(self.fraction, self.cohort, self.sampling),
                _local_of(self.local.beyond(Table)),
                SERVERS[self.server.rule](**self.server.beyond(Server)),
                **self.beyond(AlgorithmTable),
            )

    def computed(self, execution: str) -> AlgorithmTable:
        """The table with `local.execution` written out."""
        return self.model_copy(update={"local": self.local.model_copy(update={"execution": execution})})


def _local_of(keys: Mapping[str, Any]) -> Local:
    """`[local]` holds the keys of `Local` and of its `Compute` side by side."""
    own = {field.name for field in fields(Compute)}
    compute = Compute(**{key: value for key, value in keys.items() if key in own})
    return Local(**{key: value for key, value in keys.items() if key not in own}, compute=compute)


class FleetTable(Table):
    """`[fleet]`: what runs the blocks. Only `block` and `cpus_per_actor` touch the result."""

    actors: Annotated[int, Field(ge=1)] | None = None
    cpus_per_actor: Annotated[int, Field(ge=1)] = 1
    gpus_per_actor: Annotated[float, Field(ge=0)] | Literal["auto"] = 0
    block: Annotated[int, Field(ge=1)] | Literal["auto"] = "auto"


class Evaluate(Table):
    """`[evaluate]`: when, on what (default: all that the population has), which metrics, and measures of training."""

    every: Annotated[int, Field(ge=0)] = 0
    on: Annotated[tuple[Target, ...], Field(min_length=1), AfterValidator(_once)] | None = None
    metrics: Annotated[tuple[Metric, ...], Field(min_length=1), AfterValidator(_once)] = (
        "accuracy",
        "loss",
        "macro_f1",
        "weighted_f1",
    )
    measures: Annotated[tuple[Measure, ...], AfterValidator(_once)] = ()


class _Top(Table):
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    rounds: Annotated[int, Field(ge=0)] = 10


class Experiment(_Top):
    """One experiment: the algorithms run one after the other on the same population."""

    data: Data
    partition: Partition | None
    model: Model
    algorithm: tuple[AlgorithmTable, ...]
    fleet: FleetTable
    evaluate: Evaluate

    @classmethod
    def of(cls, raw: Mapping[str, Any]) -> Experiment:
        """Check and resolve what an experiment file says.

        Raises:
            InputError: see `checked`; also an unknown algorithm, model, scheme or rule.
        """
        tables = [key for key in (*cls.model_fields, "local", "server") if key not in _Top.model_fields]
        data = checked(Data, _table(raw, "data"), "data")
        if (data.dataset is None) == (data.population is None):
            both = (data.dataset, data.population)
            raise InputError(f"data.dataset, data.population = {both}: must be exactly one of them; set data.dataset")
        unused = [key for key in ("root", "label", "test") if _table(raw, "data").get(key)]
        if data.population is None and data.fold is not None:
            raise InputError(f"data.fold = {data.fold}: must stand with data.population; set partition.fold")
        if data.population is not None and unused:
            raise InputError(
                f"data.{unused[0]} with data.population: must be left out, for the clients are made; remove it"
            )
        if data.population is not None:
            # Absolute, so that the resolved file means the same from anywhere.
            data = data.model_copy(update={"population": str(Path(data.population).expanduser().resolve())})
        if data.population is not None and "partition" in raw:
            raise InputError(
                f"partition = {raw['partition']!r}: must not be given with data.population, whose clients are made; "
                "remove one of the two"
            )
        return cls(
            **checked(_Top, raw, "", besides=tables).model_dump(),
            data=data,
            partition=None if data.population is not None else _partition(_table(raw, "partition")),
            model=_model(_table(raw, "model")),
            algorithm=_algorithms(raw),
            fleet=checked(FleetTable, _table(raw, "fleet"), "fleet"),
            evaluate=checked(Evaluate, _table(raw, "evaluate"), "evaluate"),
        )

    @property
    def fold(self) -> int | None:
        """The fold of the population that is tested; None for the splits as they are stored."""
        return self.data.fold if self.partition is None else self.partition.fold

    def to_toml(self) -> dict[str, Any]:
        """The experiment as it would be written in a file, every default included."""
        return self.model_dump(mode="json", exclude_none=True, serialize_as_any=True)


@cache  # experiments are equal where their tables are, and those of two classes never are
def _partition_table(scheme: str) -> type[Partition]:
    keys = {parameter.name: (parameter.file_type, parameter.default) for parameter in parameters(scheme).values()}
    return table_with(scheme, keys, Partition)


def _partition(raw: dict[str, Any]) -> Partition:
    scheme = raw.get("scheme", "iid")
    known("partition.scheme", scheme, partitioning.SCHEMES)
    partition = checked(_partition_table(scheme), raw, "partition", of=f"scheme {scheme}")
    if not takes(scheme, "clients"):
        if partition.clients is not None:
            raise InputError(
                f"partition.clients = {partition.clients}: must be left out, for scheme {scheme} finds the clients in "
                "the data; remove it"
            )
    elif partition.clients is None:
        partition = partition.model_copy(update={"clients": CLIENTS})
    if partition.fold is not None and partition.fold >= partition.folds:
        raise InputError(
            f"partition.fold = {partition.fold}: must be below partition.folds = {partition.folds}; "
            "set partition.folds, or leave partition.fold out"
        )
    return partition


def _model(raw: dict[str, Any]) -> Model:
    model = known("model.name", raw.get("name", "mlp"), MODELS)
    table = table_of(model.build, ("shape", "classes"), Model)
    return checked(table, raw, "model", of=f"model {raw.get('name', 'mlp')}")


def _algorithms(raw: Mapping[str, Any]) -> tuple[AlgorithmTable, ...]:
    tables = raw.get("algorithm", {})
    tables = tables if isinstance(tables, list) else [tables]
    if not tables or not all(isinstance(table, dict) for table in tables):
        raise InputError(f"algorithm = {tables!r}: must be a table; write [algorithm] and its keys below")
    return tuple(_algorithm(dict(table), _table(raw, "local"), _table(raw, "server")) for table in tables)


def _algorithm(raw: dict[str, Any], local: dict[str, Any], server: dict[str, Any]) -> AlgorithmTable:
    function = known("algorithm.name", raw.get("name", "fedavg"), ALGORITHMS)
    default = signature(function).parameters["server"].default
    parts = {
        "local": _local(local, _table({"local": raw.pop("local", {})}, "local")),
        "server": _server(server, _table({"server": raw.pop("server", {})}, "server"), default),
    }
    model = table_of(function, ("sample", "local", "server"), AlgorithmTable)
    own = checked(model, raw, "algorithm", of=f"algorithm {raw.get('name', 'fedavg')}")
    table = own.model_copy(update=parts)
    table.compose()
    return table


def _local(common: dict[str, Any], own: dict[str, Any]) -> Table:
    # `steps` and `epochs` exclude each other, so an algorithm's own choice ends the common one.
    ended = {"epochs", "steps"} if own.keys() & {"epochs", "steps"} else set()
    merged = {key: value for key, value in common.items() if key not in ended} | own
    if "steps" not in merged:
        merged.setdefault("epochs", 1)
    # The proximal term is the algorithm's own key.
    return checked(table_of(Local, ("proximal", "compute"), table_of(Compute, (), Table)), merged, "local")


def _server(common: dict[str, Any], own: dict[str, Any], default: Any) -> Server:
    # What the common rule takes means nothing to an algorithm's own rule. Where none is named, it is the algorithm's.
    merged = own if "rule" in own else {**common, **own}
    usual = next(name for name, rule in SERVERS.items() if rule is type(default))
    name = merged.get("rule", usual)
    rule = known("server.rule", name, SERVERS)
    given = {**asdict(default), **merged} if name == usual else merged
    return checked(table_of(rule, (), Server), {**given, "rule": name}, "server", of=f"rule {name}")


def _table(raw: Mapping[str, Any], name: str) -> dict[str, Any]:
    table = raw.get(name, {})
    if not isinstance(table, dict):
        raise InputError(f"{name} = {table!r}: must be a table; write [{name}] and its keys below")
    return table
