"""Tables of the experiment file: partition, fleet, evaluation, devices, checkpoints and loggers."""

from __future__ import annotations

import math
import re
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

import partitioning
from algorithms import DrawnDevices
from algorithms.core.head import ModelPart
from partitioning.common.paths import absolute
from partitioning.schemes.registry import takes
from raysim.common.errors import InputError, check_known, one_input_error
from raysim.common.secrets import tracking_uri
from raysim.config import own
from raysim.config.check import ConfigTable, changed_keys, checked, distinct, table_with
from raysim.config.scheme_keys import scheme_keys
from raysim.measures.finetuning import Finetuning
from raysim.measures.metrics import METRICS, Metric, own_metric
from raysim.measures.selection import Selection

Measure = Literal["dc", "concordance", "dl", "bn"]
Target = Literal["test", "held_out", "validation", "local", "domains"]
HeldOut = Annotated[int, Field(ge=0)] | Annotated[float, Field(gt=0, lt=1)]

MOST_FOLDS = 1000
"""Largest number of folds; each needs clients of its own, and a study runs every algorithm on each."""

MOST_ACTORS = 100_000
"""Largest number of client actors."""

CLIENTS = 10
"""Default number of clients, unless the scheme finds the clients in the data."""


class PartitionTable(ConfigTable):
    """`[partition]`: the division of the samples among clients; the scheme's own keys stand beside these."""

    scheme: str = "iid"
    """Partition scheme by name, such as `iid`, `dirichlet-qp` or `natural`."""
    clients: Annotated[int, Field(ge=1)] | None = None
    """Number of clients; by default 10, or the data's own clients if the scheme finds them there."""
    test_clients: HeldOut = 0
    """Clients held out for testing: a number or a share."""
    validation_clients: HeldOut = 0
    """Clients held out for validation: a number or a share."""
    folds: Annotated[int, Field(ge=0, le=MOST_FOLDS)] = 0
    """Number of folds of clients, in place of held-out clients; 0 makes none."""
    fold: Annotated[int, Field(ge=0)] | None = None
    """Fold whose clients are held out for testing; by default none."""
    validation: Annotated[int, Field(ge=0)] | None = None
    """Fold whose clients are held out for validation; by default the fold after `fold`."""
    stratify: bool = False
    """Whether held-out groups and folds get clients of similar sizes."""
    local_test: Annotated[float, Field(ge=0, lt=1)] | Annotated[str, Field(min_length=1)] = 0
    """Share of each client's samples that becomes its own test part, a column with `train` and `test`, or "data.test"
    for each client's rows of the global test set."""
    site: str | None = None
    """Column with the site of a client; no shard holds clients of two sites. By default no sites."""
    by: str | None = None
    """Column whose values are the scheme's classes, if labels are numbers or images; by default the label."""
    features: tuple[str, ...] = ()
    """Columns whose values are counted on every client."""
    buckets: Annotated[int, Field(ge=2)] = 4
    """Quantiles into which a numeric feature is counted."""


class FleetTable(ConfigTable):
    """`[fleet]`: the processes that run the blocks. Only `block` and `cpus_per_actor` change the result."""

    actors: Annotated[int, Field(ge=1, le=MOST_ACTORS)] | None = None
    """Number of client actors (per site if `pinned`); by default as many as fit, here once a run proves long."""
    cpus_per_actor: Annotated[int, Field(ge=1, le=1024)] = 1
    """CPU cores and threads per actor."""
    gpus_per_actor: Annotated[float, Field(ge=0)] | Literal["auto"] = 0
    """GPUs per actor, fractions included; `auto` shares a GPU among as many actors as its memory holds."""
    block: Annotated[int, Field(ge=1)] | Literal["auto"] = "auto"
    """Clients per block, which one call trains and sums; `auto` depends on the cohort and the execution."""
    copies: bool = True
    """Whether nodes that cannot read the population get a copy."""
    group: Annotated[int, Field(ge=1)] | Literal["auto"] = "auto"
    """Blocks summed on one node before it sends; `auto` is ceil(blocks / (4 nodes))."""
    labels: dict[str, str] = Field(default_factory=dict)
    """Ray labels that an actor's node must have; by default none."""
    pinned: bool = False
    """Whether clients train only on the nodes of their own site."""


class FinetuneTable(ConfigTable):
    """`finetune` of `[evaluate]`: the training of a copy of each client's model before it is evaluated."""

    epochs: Annotated[int, Field(ge=1)] = Finetuning.epochs
    """Passes over the client's training part."""
    part: ModelPart = Finetuning.part
    """Part of the model that is fine-tuned."""


EVALUATIONS = 20
"""Most evaluations in a run with `evaluate.every = "auto"`, beside the one after the last round."""


class EvaluateTable(ConfigTable):
    """`[evaluate]`: the time, data and metrics of evaluations, and their consequences."""

    every: Annotated[int, Field(ge=0)] | Literal["auto"] = "auto"
    """Rounds between two evaluations; 0 evaluates only after the last round, "auto" up to twenty times in a run."""
    on: Annotated[tuple[Target, ...], Field(min_length=1), AfterValidator(distinct)] | None = None
    """Data to evaluate on; by default everything that the population holds."""
    metrics: Annotated[tuple[str, ...], Field(min_length=1), AfterValidator(distinct)] | None = None
    """Metrics of every evaluation, or `module:function` for your own; by default the usual ones of the labels."""
    measures: Annotated[tuple[Measure, ...], AfterValidator(distinct)] = ()
    """Extra measures per round: `dc` and `concordance` of a centralised twin, `dl` and `bn` of the client models."""
    select: Literal["last", "best"] = "last"
    """Model to write: of the last round, or of the best evaluated round by `select_by`."""
    select_by: str = "validation_accuracy"
    """Column that ranks the evaluated rounds."""
    patience: Annotated[int, Field(ge=1)] | None = None
    """Evaluations without a better `select_by` before the run stops; by default it never stops early."""
    target: dict[str, float] = Field(default_factory=dict)
    """Values of columns whose first round is recorded; by default none."""
    until_target: bool = False
    """Whether the run stops once every `target` is reached, for experiments that count rounds."""
    clients: bool = True
    """Whether each client is scored after the last round, for `clients.parquet`."""
    finetune: FinetuneTable | None = None
    """Fine-tuning of each client's model, `epochs` and `part`, for the columns `*_finetuned_*`; by default none."""

    def interval(self, rounds: int) -> int:
        """Return the rounds between two evaluations in a run of `rounds`; 0 for one after the last round only."""
        if self.every != "auto":
            return self.every
        return 1 if "concordance" in self.measures else max(1, math.ceil(rounds / EVALUATIONS))

    @property
    def measured(self) -> tuple[Metric, ...] | None:
        """The metrics; None for the usual ones."""
        return None if self.metrics is None else tuple(map(metric_of, self.metrics))

    @property
    def finetuning(self) -> Finetuning | None:
        """The fine-tuning; None for none."""
        return None if self.finetune is None else Finetuning(**self.finetune.beyond(ConfigTable))

    @property
    def selection(self) -> Selection:
        """Rules that the main loop applies to evaluations."""
        return Selection(self.select == "best", self.select_by, self.patience, self.target, self.until_target)


class DevicesTable(ConfigTable):
    """`[devices]`: the devices of clients in virtual time; without this table no time is simulated."""

    table: str | None = None
    """Parquet table with one row a device, in place of the five numbers below; by default none."""
    sha256: str | None = None
    """SHA-256 of the table's file; by default any. raysim writes it into the run's config.toml."""
    availability: Literal["always", "day-night"] = "always"
    """Times at which clients are available: `always`, or each one's night, every 24 hours; a table has its own."""
    zones: Annotated[int, Field(ge=1, le=24)] = 24
    """Time zones of the clients under `day-night`, spread over the day."""
    hours: Annotated[float, Field(gt=0, le=24)] = 8.0
    """Median length of a client's night under `day-night`, in hours."""
    compute: float = DrawnDevices.compute
    """Samples per second that the median client trains on."""
    spread: float = DrawnDevices.spread
    """Standard deviation of the logarithm of the clients' speeds, from 0 to 10."""
    down: float | None = DrawnDevices.down
    """Bytes per second from the server to a client; by default no limit."""
    up: float | None = DrawnDevices.up
    """Bytes per second from a client to the server; by default no limit."""
    latency: float = DrawnDevices.latency
    """Seconds per exchange with the server."""

    @property
    def source(self) -> Path | None:
        """Path of the table; None without one. Raise InputError if there is no such file."""
        if self.table is not None and not Path(self.table).is_file():
            raise InputError(f"devices.table = {self.table!r}: must be a Parquet file, and is missing; check the path")
        return None if self.table is None else Path(self.table)

    @property
    def digest(self) -> str | None:
        """SHA-256 of the table, as written or of the file; None without a table."""
        if self.sha256 is not None or (path := self.source) is None:
            return self.sha256
        from partitioning.store.files import sha256  # late: it imports pyarrow

        return sha256(path)

    def profile(self) -> DrawnDevices:
        """Return the devices as a value; raise InputError if a number is out of range."""
        with one_input_error():
            return DrawnDevices(**{each.name: getattr(self, each.name) for each in fields(DrawnDevices)})


class CheckpointTable(ConfigTable):
    """`[checkpoint]`: the frequency of checkpoints; it never changes the result."""

    every: Annotated[int, Field(ge=1)] = 1
    """Least number of aggregations between two checkpoints."""


class WatchTable(ConfigTable):
    """`[watch]`: the loggers that receive the rounds; it never changes the result."""

    loggers: Annotated[tuple[str, ...], AfterValidator(distinct)] = ()
    """Loggers by name (`tensorboard`, `mlflow`, `wandb`) or `module:Class`; by default none."""
    project: str | None = None
    """MLflow experiment and W&B project; by default the name of the run's folder."""
    mlflow_uri: str | None = None
    """MLflow tracking server; by default a database in the run's folder. A password in it is written as `***`."""
    wandb_mode: Literal["offline", "online"] = "offline"
    """Whether W&B data stay in the run's folder or are sent at once."""


@cache  # Two experiments are equal only if their tables have the same class.
def partition_table(scheme: str) -> type[PartitionTable]:
    """Return `[partition]` with the keys of a scheme."""
    return table_with(scheme, scheme_keys(scheme), PartitionTable)


def partition_of(raw: dict[str, Any]) -> PartitionTable:
    """Check and resolve `[partition]`.

    Raises:
        InputError: see `checked`; also an unknown scheme, or keys that exclude each other.
    """
    scheme = raw.get("scheme", "iid")
    check_known(f"partition.scheme = {scheme!r}", scheme, partitioning.SCHEMES)
    partition = checked(partition_table(scheme), raw, "partition", of=f"scheme {scheme}")
    if not takes(scheme, "clients"):
        if partition.clients is not None:
            raise InputError(
                f"partition.clients = {partition.clients}: must be left out, because scheme {scheme} finds the clients "
                "in the data; remove it"
            )
    elif partition.clients is None:
        partition = partition.model_copy(update={"clients": CLIENTS})
    if partition.fold is not None and partition.fold >= partition.folds:
        raise InputError(
            f"partition.fold = {partition.fold}: must be below partition.folds = {partition.folds}; "
            "set partition.folds, or leave partition.fold out"
        )
    if "buckets" in changed_keys(partition) and not partition.features:
        raise InputError(
            f"partition.buckets = {partition.buckets}: must stand with partition.features; set them, or remove the key"
        )
    if partition.validation is not None and partition.fold is None:
        raise InputError(
            f"partition.validation = {partition.validation}: must stand with partition.fold; set partition.fold"
        )
    if partition.validation is not None and partition.validation not in {*range(partition.folds)} - {partition.fold}:
        raise InputError(
            f"partition.validation = {partition.validation}: must be another fold than partition.fold = "
            f"{partition.fold}, below partition.folds = {partition.folds}; correct it, or leave it out"
        )
    return partition


def devices_of(raw: dict[str, Any]) -> DevicesTable:
    """Check `[devices]`; raise InputError if a key is unknown or a number is out of range."""
    table = checked(DevicesTable, raw, "devices")
    table.profile()
    without = {"sha256": table.table is None, **dict.fromkeys(("zones", "hours"), table.availability == "always")}
    for key in changed_keys(table):
        if table.table is not None and key not in ("table", "sha256"):
            raise InputError(
                f"devices.{key} with devices.table: must be left out, because the table says it; remove it"
            )
        if without.get(key):
            other = "devices.table" if key == "sha256" else 'devices.availability = "day-night"'
            raise InputError(
                f"devices.{key} = {getattr(table, key)!r}: must stand with {other}; add it, or remove the key"
            )
    if table.table is None:
        return table
    return table.model_copy(update={"table": str(absolute("devices.table", table.table))})


def metric_of(name: str) -> Metric:
    """Return a metric by name, or the user's own: a function of (outputs, y), or a class with `sums` and `value`."""
    found = own.resolve("evaluate.metrics", name, METRICS)
    if isinstance(found, Metric):
        return found
    thing: Any = own.instance("evaluate.metrics", name, found, "sums", "value")
    given = ("sums", thing.sums) if hasattr(thing, "sums") else ("", thing)
    own.check_parameters("evaluate.metrics", f"{name}.{given[0]}".rstrip("."), given[1], ("outputs", "y"))
    if hasattr(thing, "sums"):
        own.check_parameters("evaluate.metrics", f"{name}.value", thing.value, ("sums", "samples"))
    return own_metric(re.split("[:.]", name)[-1], thing)


def watch_of(raw: dict[str, Any]) -> WatchTable:
    """Check `[watch]`; raise InputError if a key is unknown or stands without its logger."""
    watch = checked(WatchTable, raw, "watch")
    for key, logger in (("mlflow_uri", "mlflow"), ("wandb_mode", "wandb")):
        if key in raw and getattr(watch, key) != "offline" and logger not in watch.loggers:
            raise InputError(
                f"watch.{key} = {raw[key]!r}: must stand with the logger {logger!r}; add it to watch.loggers"
            )
    if watch.mlflow_uri is not None:
        tracking_uri(watch.mlflow_uri)
    return watch


def evaluate_of(raw: dict[str, Any]) -> EvaluateTable:
    """Check `[evaluate]`.

    Raises:
        InputError: see `checked`; also early stopping or a choice of rounds without evaluations to judge by.
    """
    evaluate = checked(EvaluateTable, raw, "evaluate")
    if evaluate.every == 0 and (rules := [*evaluate.selection.decides]):
        raise InputError(
            f"evaluate.every = 0 with {rules[-1]}: must be >= 1, because 0 evaluates only the last round; "
            "set evaluate.every = 1"
        )
    if evaluate.until_target and not evaluate.target:
        raise InputError(
            "evaluate.until_target = true without evaluate.target: must have a value to reach; set evaluate.target = "
            "{ test_accuracy = 0.9 }"
        )
    names = [metric.name for metric in evaluate.measured or ()]
    if (twice := next((name for name in names if names.count(name) > 1), None)) is not None:
        raise InputError(
            f"evaluate.metrics has two metrics named {twice!r}: must have columns of their own; rename one"
        )
    if "samples" in names:
        raise InputError(
            "evaluate.metrics has a metric named 'samples': must have a column of its own in clients.parquet, whose "
            "test_samples counts samples; rename it"
        )
    if evaluate.patience is not None and not evaluate.select_by.startswith("validation_"):
        raise InputError(
            f"evaluate.select_by = {evaluate.select_by!r} with evaluate.patience: must be a column of the validation "
            'clients, because test data must not decide when to stop; set evaluate.select_by = "validation_accuracy"'
        )
    return evaluate
