"""The experiment, resolved: every table is checked and every default is written out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from algorithms import Algorithm, Option
from algorithms.rounds.timed import check_virtual_time
from algorithms.training.loss import LabelKind
from raysim.common.errors import InputError, every, one_input_error
from raysim.common.names import check_names
from raysim.common.secrets import without_secrets
from raysim.config import own
from raysim.config.algorithm import INNER, AlgorithmTable, algorithms_of
from raysim.config.attack import AttackTable
from raysim.config.bounds import check_values
from raysim.config.check import ConfigTable, checked, flat, part, table_in
from raysim.config.data import DataTable, data_of
from raysim.config.hints import hinted
from raysim.config.local import local_table
from raysim.config.model import ModelTable, model_of
from raysim.config.options import Tell, option_tables, options_of
from raysim.config.own_notices import module_notices, own_code_notices
from raysim.config.read import algorithm_names
from raysim.config.tables import (
    CheckpointTable,
    DevicesTable,
    EvaluateTable,
    FleetTable,
    PartitionTable,
    WatchTable,
    devices_of,
    evaluate_of,
    partition_of,
    watch_of,
)
from raysim.measures.metrics import BINARY, METRICS, Metric

if TYPE_CHECKING:  # It imports torch.
    from raysim.data.labels import LabelReader

ROUNDS = 10
"""Default number of rounds."""


class TopLevelKeys(ConfigTable):
    """Keys of an experiment file that stand outside its tables."""

    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    """Seed of every random draw."""
    rounds: Annotated[int, Field(ge=0)] | None = None
    """Number of rounds, by default 10; 0 writes the initial model. Excludes `epochs`."""
    epochs: Annotated[float, Field(gt=0)] | None = None
    """Budget in passes over the training data, from which each algorithm's rounds follow."""
    modules: tuple[str, ...] | None = None
    """Folders of your own modules; by default the file's folder and the working directory."""


class Experiment(TopLevelKeys):
    """One experiment: algorithms that run one after the other on the same population.

    Either `rounds` or `epochs` is None. `modules` holds the folders of the user's own modules.
    """

    data: DataTable
    partition: PartitionTable | None
    model: ModelTable
    algorithm: tuple[AlgorithmTable, ...]
    fleet: FleetTable
    evaluate: EvaluateTable
    checkpoint: CheckpointTable = CheckpointTable()
    watch: WatchTable = WatchTable()
    devices: DevicesTable | None = None
    attack: AttackTable | None = None

    @classmethod
    def of(cls, raw: Mapping[str, Any], folders: Sequence[Path] = ()) -> Experiment:
        """Check and resolve an experiment file.

        Args:
            raw: the file's tables.
            folders: first places to search for the user's own modules.

        Raises:
            InputError: see `checked`; also an unknown algorithm, model, scheme or rule.
        """
        check_values(raw)
        if "study" in raw:
            raise InputError("[study] in an experiment: must run as a study; use `raysim study`, or remove the table")
        raw = own.load_own_code(raw, folders)
        tables = [key for key in (*cls.model_fields, *INNER) if key not in TopLevelKeys.model_fields]
        try:
            found = every(
                {
                    "top": lambda: _top_level(raw, tables),
                    "data": lambda: data_of(part(raw, "data")),
                    "partition": lambda: _partition(raw),
                    "model": lambda: model_of(part(raw, "model")),
                    "algorithm": lambda: algorithms_of(raw),
                    "fleet": lambda: checked(FleetTable, part(raw, "fleet"), "fleet"),
                    "evaluate": lambda: evaluate_of(part(raw, "evaluate")),
                    "checkpoint": lambda: checked(CheckpointTable, part(raw, "checkpoint"), "checkpoint"),
                    "watch": lambda: watch_of(part(raw, "watch")),
                    "devices": lambda: devices_of(part(raw, "devices")) if "devices" in raw else None,
                    **{
                        name: partial(kind.over, name, part(raw, name), {})
                        for name, kind in option_tables(cls).items()
                        if name in raw
                    },
                }
            )
        except InputError as error:
            raise hinted(error, raw, _tables()) from None
        top = {**found.pop("top"), "modules": tuple(own.source_folders(own.names_in(raw))) or None}
        experiment = cls(**top, **found)
        check_names(experiment.names, [table.label for table in experiment.algorithm])
        _check_metrics(experiment)
        for option in (
            *options_of(experiment).values(),
            *(each for table in experiment.algorithm for each in table.options),
        ):
            option.check(experiment)
        for name in experiment.names if options_of(experiment) or experiment.devices is None else ():
            algorithm = experiment.compose(name)  # checks the options of the experiment against the parts
            if experiment.devices is None:
                _check_without_devices(name, algorithm)
        return experiment

    @property
    def names(self) -> list[str]:
        """Folder names of the algorithms."""
        return algorithm_names({"name": table.name, "label": table.label} for table in self.algorithm)

    def measured(self, labels: LabelKind) -> tuple[Metric, ...] | None:
        """Return the metrics of an evaluation; None for the usual ones of the labels.

        Args:
            labels: kind of the population's labels.
        """
        if self.evaluate.metrics is None and {table.local.loss for table in self.algorithm} == {"binary"}:
            return tuple(METRICS[name] for name in BINARY[labels])
        return self.evaluate.measured

    def table(self, name: str) -> AlgorithmTable:
        """Return the algorithm with this folder name."""
        return self.algorithm[self.names.index(name)]

    def compose(self, name: str) -> Algorithm:
        """Return the algorithm with this folder name as a value; errors as of `composed`."""
        return self.composed(self.table(name))

    def composed(self, table: AlgorithmTable, labels: LabelReader | None = None) -> Algorithm:
        """Return an algorithm as a value, with the options of the experiment.

        Args:
            table: the algorithm.
            labels: labels of the population, once it is known.

        Raises:
            InputError: a number is out of range, or two parts contradict each other.
        """
        algorithm, options = table.compose(), self.options(labels)
        with one_input_error():
            return algorithm.having(*options) if options else algorithm

    def options(self, labels: LabelReader | None = None) -> list[Option]:
        """Return the options of all algorithms; `labels` and errors as for `composed`."""
        return [each for table in options_of(self).values() if (each := table.option(None, labels)) is not None]

    def solved(self, tell: Tell) -> Experiment:
        """Return the experiment with what follows from its rounds, such as a noise; see `OptionTable.solved`."""
        found = tuple(table.solved(self.rounds, tell) for table in self.algorithm)
        return self.model_copy(update={"algorithm": found})

    def excluded(self, clients: NDArray[np.int64]) -> list[int]:
        """Return those of the training clients, [K], whose own data are not evaluated."""
        return [client for option in self.options() for client in option.excluded(clients, self.seed).tolist()]

    def resolved(
        self, metrics: tuple[str, ...], algorithm: tuple[AlgorithmTable, ...], sha256: str | None
    ) -> Experiment:
        """Return the experiment with what its population decides.

        Args:
            metrics: names of the metrics that are measured.
            algorithm: tables of the algorithms, without a value of "auto".
            sha256: SHA-256 of the table of devices; None without one.
        """
        changes: dict[str, Any] = {"algorithm": algorithm}
        changes["evaluate"] = self.evaluate.model_copy(update={"metrics": self.evaluate.metrics or metrics})
        if self.devices is not None and sha256 is not None:
            changes["devices"] = self.devices.model_copy(update={"sha256": sha256})
        return self.model_copy(update=changes)

    @property
    def own_code(self) -> list[ModuleType]:
        """The user's modules behind the experiment."""
        return own.modules_of(self.named)

    @property
    def has_own_code(self) -> bool:
        """Whether code of the user's own is behind the result."""
        return any(":" in name for name in self.named)

    @property
    def own_code_notices(self) -> list[str]:
        """Notices of foreign code that the experiment runs, and of state that its modules have."""
        return own_code_notices([*self.named, *self.watch.loggers]) + module_notices(self.own_code)

    @property
    def named(self) -> list[str]:
        """Names of everything behind the result that may be one's own: models, augmentations, algorithms, metrics."""
        return own.names_in({key: table for key, table in self.to_toml().items() if key != "watch"})

    @property
    def fold(self) -> int | None:
        """Test fold of the population; None for the stored splits."""
        return (self.partition or self.data).fold

    @property
    def validation(self) -> int | None:
        """Validation fold; None for the fold after the test fold."""
        return (self.partition or self.data).validation

    def flat(self, name: str) -> dict[str, Any]:
        """Return an algorithm's settings by dotted key (`local.lr`), with the tables that all algorithms share."""
        config = without_secrets(self.to_toml())
        table = dict(config.pop("algorithm")[self.names.index(name)])
        own_tables = [key for key in INNER if key in table]
        of_all = {key: value for key, value in config.items() if key not in ("watch", "modules")}
        return dict(flat({**of_all, **{key: table.pop(key) for key in own_tables}, "algorithm": table}))


def _check_metrics(experiment: Experiment) -> None:
    """Refuse a metric of logits beside a loss whose outputs are the numbers themselves."""
    losses = [table.local.loss for table in experiment.algorithm]
    of_numbers = [loss for loss in losses if loss in ("mse", "huber")]
    if of_numbers and "multilabel_f1" in (experiment.evaluate.metrics or ()):
        raise InputError(
            f"evaluate.metrics has 'multilabel_f1' with local.loss = {of_numbers[0]!r}: must go with a loss of logits, "
            'because a label is predicted if its logit is above 0; set local.loss = "binary", or remove the metric'
        )


def _check_without_devices(name: str, algorithm: Algorithm) -> None:
    """Raise InputError if the algorithm has a key of virtual time."""
    try:
        with one_input_error():
            check_virtual_time(algorithm, None)
    except InputError as error:
        raise InputError(f"{name}: {error}") from None


def _tables() -> dict[str, type[ConfigTable]]:
    """Return the models of a file's tables by name, without the keys of a named algorithm, model or rule."""
    # Of two keys with one name, hints prefer the earlier: tables inside `[algorithm]` follow it at once.
    names = [*("data", "partition", "model", "algorithm", *INNER), *Experiment.model_fields]
    fields = {**AlgorithmTable.model_fields, **Experiment.model_fields}
    tables = {name: table for name in names if (table := table_in(fields[name].annotation))}
    return {"": TopLevelKeys, **tables, "local": local_table("cross-entropy")}


def _partition(raw: Mapping[str, Any]) -> PartitionTable | None:
    data = part(raw, "data")
    if data.get("population") is None or data.get("dataset") is not None:
        return partition_of(part(raw, "partition"))
    if "partition" in raw:
        raise InputError(
            f"partition = {raw['partition']!r}: must not be given with data.population, because its clients already "
            "exist; remove one of the two"
        )
    return None


def _top_level(raw: Mapping[str, Any], tables: Sequence[str]) -> dict[str, Any]:
    top = checked(TopLevelKeys, raw, "", besides=tables)
    if top.epochs is None:
        return {**top.model_dump(), "rounds": ROUNDS if top.rounds is None else top.rounds}
    if top.rounds is not None:
        both = (raw["rounds"], raw["epochs"])
        raise InputError(f"rounds, epochs = {both}: must be only one of them; remove the other")
    return top.model_dump()
