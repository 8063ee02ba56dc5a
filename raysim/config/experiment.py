"""The experiment, resolved: every table checked, every default written out."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

import partitioning
from algorithms import Devices
from partitioning.schemes.registry import parameters, takes
from partitioning.store.remote import is_uri
from raysim.common.errors import InputError, one_input_error
from raysim.config import own
from raysim.config.algorithm import AlgorithmTable, algorithms_of
from raysim.config.check import Table, checked, flat, known, part, table_with
from raysim.config.model import Model, model_of
from raysim.config.preparation import Preparation
from raysim.measures.selection import Selection
from raysim.store.folder import algorithm_names

Metric = Literal["accuracy", "loss", "macro_f1", "weighted_f1", "auc", "miou"]
Measure = Literal["dc", "concordance", "dl", "bn"]
Target = Literal["test", "held_out", "validation", "local", "domains"]

ROUNDS = 10
"""How many rounds there are where the file says neither these nor `epochs`."""

CLIENTS = 10
"""How many clients a partition has where the file does not say and the data do not decide."""


OWN_FILES = re.compile("(shifted:)?(file|folder):")
"""What the name of a data set begins with that is a user's own files."""


def _absolute(*parts: str) -> str:
    return str(Path(*(Path(part).expanduser() for part in parts)).resolve())


def _once(names: tuple[str, ...]) -> tuple[str, ...]:
    if len(set(names)) < len(names):
        raise ValueError("should name each only once")
    return names


class Data(Preparation):
    """`[data]`: which samples there are, or a population that was made before; and what is made of them."""

    dataset: str | None = None
    root: str | None = None
    label: str | None = None
    without: Annotated[tuple[str, ...], Field(min_length=1), AfterValidator(_once)] | None = None
    test: str | Annotated[float, Field(ge=0, lt=1)] = 0.0
    population: str | None = None
    fold: Annotated[int, Field(ge=0)] | None = None
    validation: Annotated[int, Field(ge=0)] | None = None
    shifts: tuple[str, ...] = ()
    per_domain: Annotated[int, Field(ge=1)] | None = None

    def located(self) -> Data:
        """The same with absolute paths: that of a user's own files starts where `root` says, or here."""
        elsewhere = self.population is None or is_uri(self.population)
        located = {} if elsewhere else {"population": _absolute(str(self.population))}
        if self.root is not None or OWN_FILES.match(self.dataset or ""):
            located["root"] = _absolute(self.root or "")
        if isinstance(self.test, str) and (form := OWN_FILES.match(self.test)):
            paths = [_absolute(self.root or "", path.strip()) for path in self.test[form.end() :].split(",")]
            located["test"] = form[0] + ",".join(paths)
        return self.model_copy(update=located)


class Partition(Table):
    """`[partition]`: how the samples become clients, which `fold` is tested and which one is for `validation`.

    The scheme's own keys stand beside.
    """

    scheme: str = "iid"
    clients: Annotated[int, Field(ge=1)] | None = None
    test_clients: Annotated[int, Field(ge=0)] | Annotated[float, Field(gt=0, lt=1)] = 0
    validation_clients: Annotated[int, Field(ge=0)] | Annotated[float, Field(gt=0, lt=1)] = 0
    folds: Annotated[int, Field(ge=0)] = 0
    fold: Annotated[int, Field(ge=0)] | None = None
    validation: Annotated[int, Field(ge=0)] | None = None
    stratify: bool = False
    local_test: Annotated[float, Field(ge=0, lt=1)] = 0
    site: str | None = None
    features: tuple[str, ...] = ()
    buckets: Annotated[int, Field(ge=2)] = 4


class FleetTable(Table):
    """`[fleet]`: what runs the blocks, and where. Only `block` and `cpus_per_actor` touch the result."""

    actors: Annotated[int, Field(ge=1, le=100_000)] | None = None
    cpus_per_actor: Annotated[int, Field(ge=1, le=1024)] = 1
    gpus_per_actor: Annotated[float, Field(ge=0)] | Literal["auto"] = 0
    block: Annotated[int, Field(ge=1)] | Literal["auto"] = "auto"
    copies: bool = True
    group: Annotated[int, Field(ge=1)] | Literal["auto"] = "auto"
    labels: dict[str, str] = Field(default_factory=dict)
    pinned: bool = False


class Evaluate(Table):
    """`[evaluate]`: when, on what (default: all there is), which metrics and measures, and what follows from them."""

    every: Annotated[int, Field(ge=0)] = 0
    on: Annotated[tuple[Target, ...], Field(min_length=1), AfterValidator(_once)] | None = None
    metrics: Annotated[tuple[Metric, ...], Field(min_length=1), AfterValidator(_once)] = (
        "accuracy",
        "loss",
        "macro_f1",
        "weighted_f1",
    )
    measures: Annotated[tuple[Measure, ...], AfterValidator(_once)] = ()
    select: Literal["last", "best"] = "last"
    select_by: str = "validation_accuracy"
    patience: Annotated[int, Field(ge=1)] | None = None
    target: dict[str, float] = Field(default_factory=dict)

    @property
    def selection(self) -> Selection:
        """The keys that ask something of the evaluations, as the main loop takes them."""
        return Selection(self.select == "best", self.select_by, self.patience, self.target)


class DevicesTable(Table):
    """`[devices]`: how fast clients are in virtual time; without the table that is not simulated."""

    compute: float = Devices.compute
    spread: float = Devices.spread
    down: float | None = Devices.down
    up: float | None = Devices.up
    latency: float = Devices.latency

    def profile(self) -> Devices:
        """The devices as a value; InputError where a number is out of range."""
        with one_input_error():
            return Devices(**self.beyond(Table))


class CheckpointTable(Table):
    """`[checkpoint]`: how often a run writes down where it could go on; never touches the result."""

    every: Annotated[int, Field(ge=1)] = 1


class WatchTable(Table):
    """`[watch]`: which loggers are told of the rounds, and where these send it; never touches the result."""

    loggers: Annotated[tuple[str, ...], AfterValidator(_once)] = ()
    project: str | None = None
    mlflow_uri: str | None = None
    wandb_mode: Literal["offline", "online"] = "offline"


class _Top(Table):
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    rounds: Annotated[int, Field(ge=0)] | None = None
    epochs: Annotated[float, Field(gt=0)] | None = None
    modules: tuple[str, ...] | None = None


class Experiment(_Top):
    """One experiment: the algorithms run one after the other on the same population.

    They run for so many `rounds`, or for as many as make so many `epochs`: one of the two is None. `modules` are the
    folders of the user's own modules.
    """

    data: Data
    partition: Partition | None
    model: Model
    algorithm: tuple[AlgorithmTable, ...]
    fleet: FleetTable
    evaluate: Evaluate
    checkpoint: CheckpointTable = CheckpointTable()
    watch: WatchTable = WatchTable()
    devices: DevicesTable | None = None

    @classmethod
    def of(cls, raw: Mapping[str, Any], folders: Sequence[Path] = ()) -> Experiment:
        """Check and resolve what an experiment file says.

        Args:
            raw: the file's tables.
            folders: where a user's own modules are looked for first.

        Raises:
            InputError: see `checked`; also an unknown algorithm, model, scheme or rule.
        """
        if "study" in raw:
            raise InputError("[study] in an experiment: must be run as a study; use `raysim study`, or leave it out")
        raw = own.loaded(raw, folders)
        tables = [key for key in (*cls.model_fields, "local", "server") if key not in _Top.model_fields]
        data = checked(Data, part(raw, "data"), "data")
        if (data.dataset is None) == (data.population is None):
            both = (data.dataset, data.population)
            raise InputError(f"data.dataset, data.population = {both}: must be exactly one of them; set data.dataset")
        making = ("root", "label", "without", "test", "shifts", "per_domain")
        unused = [key for key in making if part(raw, "data").get(key)]
        if data.population is None and data.fold is not None:
            raise InputError(f"data.fold = {data.fold}: must stand with data.population; set partition.fold")
        if data.validation is not None and data.fold is None:
            raise InputError(f"data.validation = {data.validation}: must stand with data.fold; set it")
        if data.population is not None and unused:
            raise InputError(
                f"data.{unused[0]} with data.population: must be left out, for the clients are made; remove it"
            )
        if data.test == "":
            raise InputError('data.test = "": must be a data set, or a share of the rows; set data.test = 0.2')
        data.check(made=data.population is not None)
        # Paths are absolute, so that the resolved file means the same from anywhere.
        data = data.located()
        if data.population is not None and "partition" in raw:
            raise InputError(
                f"partition = {raw['partition']!r}: must not be given with data.population, whose clients are made; "
                "remove one of the two"
            )
        return cls(
            **{**_top(raw, tables), "modules": tuple(own.homes(own.names(raw))) or None},
            data=data,
            partition=None if data.population is not None else _partition(part(raw, "partition")),
            model=model_of(part(raw, "model")),
            algorithm=algorithms_of(raw),
            fleet=checked(FleetTable, part(raw, "fleet"), "fleet"),
            evaluate=_evaluate(part(raw, "evaluate")),
            checkpoint=checked(CheckpointTable, part(raw, "checkpoint"), "checkpoint"),
            watch=_watch(part(raw, "watch")),
            devices=_devices(part(raw, "devices")) if "devices" in raw else None,
        )

    @property
    def names(self) -> list[str]:
        """Its algorithms: what their folders are called."""
        return algorithm_names([table.name for table in self.algorithm])

    def table(self, name: str) -> AlgorithmTable:
        """The algorithm of that folder."""
        return self.algorithm[self.names.index(name)]

    @property
    def own_code(self) -> list[ModuleType]:
        """The user's modules that anything of it comes from."""
        modules = [*self.model.own_code, *(module for table in self.algorithm for module in table.own_code)]
        return list(dict.fromkeys(modules))

    @property
    def own_code_told(self) -> list[str]:
        """What a person must know who runs it: whose code it names."""
        return own.whose([*self.named, *self.watch.loggers])

    @property
    def named(self) -> list[str]:
        """What may be the user's own of what decides the result: models, algorithms and servers' rules."""
        models = [self.model, *(table.model for table in self.algorithm if table.model)]
        rules = [table.server.rule for table in self.algorithm]
        return [*(model.name for model in models), *(table.name for table in self.algorithm), *rules]

    @property
    def fold(self) -> int | None:
        """The fold of the population that is tested; None for the splits as they are stored."""
        return (self.partition or self.data).fold

    @property
    def validation(self) -> int | None:
        """The fold that is for validation; None for the one after the fold that is tested."""
        return (self.partition or self.data).validation

    def flat(self, name: str) -> dict[str, Any]:
        """What an algorithm was given, `local.lr` and the like beside the tables that all have."""
        config = self.to_toml()
        table = dict(config.pop("algorithm")[self.names.index(name)])
        own_tables = [key for key in ("local", "server", "model") if key in table]
        of_all = {key: value for key, value in config.items() if key not in ("watch", "modules")}
        return dict(flat({**of_all, **{key: table.pop(key) for key in own_tables}, "algorithm": table}))

    def to_toml(self) -> dict[str, Any]:
        """The experiment as it would be written in a file, every default included."""
        return self.model_dump(mode="json", exclude_none=True, serialize_as_any=True)


def _top(raw: Mapping[str, Any], tables: Sequence[str]) -> dict[str, Any]:
    top = checked(_Top, raw, "", besides=tables)
    if top.epochs is None:
        return {**top.model_dump(), "rounds": ROUNDS if top.rounds is None else top.rounds}
    if top.rounds is not None:
        both = (raw["rounds"], raw["epochs"])
        raise InputError(f"rounds, epochs = {both}: must be only one of them; remove the other")
    return top.model_dump()


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
    if partition.validation is not None and partition.fold is None:
        raise InputError(f"partition.validation = {partition.validation}: must stand with partition.fold; set it")
    return partition


def _devices(raw: dict[str, Any]) -> DevicesTable:
    table = checked(DevicesTable, raw, "devices")
    table.profile()
    return table


def _watch(raw: dict[str, Any]) -> WatchTable:
    watch = checked(WatchTable, raw, "watch")
    for key, logger in (("mlflow_uri", "mlflow"), ("wandb_mode", "wandb")):
        if key in raw and getattr(watch, key) != "offline" and logger not in watch.loggers:
            raise InputError(
                f"watch.{key} = {raw[key]!r}: must stand with the logger {logger!r}; add it to watch.loggers"
            )
    return watch


def _evaluate(raw: dict[str, Any]) -> Evaluate:
    evaluate = checked(Evaluate, raw, "evaluate")
    if not evaluate.every and (evaluate.patience is not None or evaluate.select == "best"):
        key = 'select = "best"' if evaluate.patience is None else f"patience = {evaluate.patience}"
        raise InputError(
            f"evaluate.every = 0 with evaluate.{key}: must be >= 1, for only the last round would be evaluated; "
            "set evaluate.every = 1"
        )
    if evaluate.patience is not None and not evaluate.select_by.startswith("validation_"):
        raise InputError(
            f"evaluate.select_by = {evaluate.select_by!r} with evaluate.patience: must be a column of the validation "
            'clients, for what is tested must not say when to stop; set evaluate.select_by = "validation_accuracy"'
        )
    return evaluate
