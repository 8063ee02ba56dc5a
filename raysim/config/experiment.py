"""The experiment, resolved: every table is checked and every default is written out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any

from pydantic import Field

from raysim.common.errors import InputError
from raysim.config import own
from raysim.config.algorithm import AlgorithmTable, algorithms_of
from raysim.config.check import ConfigTable, checked, flat, part
from raysim.config.data import DataTable, data_of
from raysim.config.model import ModelTable, model_of
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

    @classmethod
    def of(cls, raw: Mapping[str, Any], folders: Sequence[Path] = ()) -> Experiment:
        """Check and resolve an experiment file.

        Args:
            raw: the file's tables.
            folders: first places to search for the user's own modules.

        Raises:
            InputError: see `checked`; also an unknown algorithm, model, scheme or rule.
        """
        if "study" in raw:
            raise InputError("[study] in an experiment: must run as a study; use `raysim study`, or remove the table")
        raw = own.load_own_code(raw, folders)
        tables = [key for key in (*cls.model_fields, "local", "server") if key not in TopLevelKeys.model_fields]
        data = data_of(part(raw, "data"))
        if data.population is not None and "partition" in raw:
            raise InputError(
                f"partition = {raw['partition']!r}: must not be given with data.population, because its clients "
                "already exist; remove one of the two"
            )
        return cls(
            **{**_top_level(raw, tables), "modules": tuple(own.source_folders(own.names_in(raw))) or None},
            data=data,
            partition=None if data.population is not None else partition_of(part(raw, "partition")),
            model=model_of(part(raw, "model")),
            algorithm=algorithms_of(raw),
            fleet=checked(FleetTable, part(raw, "fleet"), "fleet"),
            evaluate=evaluate_of(part(raw, "evaluate")),
            checkpoint=checked(CheckpointTable, part(raw, "checkpoint"), "checkpoint"),
            watch=watch_of(part(raw, "watch")),
            devices=devices_of(part(raw, "devices")) if "devices" in raw else None,
        )

    @property
    def names(self) -> list[str]:
        """Folder names of the algorithms."""
        return algorithm_names([table.name for table in self.algorithm])

    def table(self, name: str) -> AlgorithmTable:
        """Return the algorithm with this folder name."""
        return self.algorithm[self.names.index(name)]

    @property
    def own_code(self) -> list[ModuleType]:
        """The user's modules behind the experiment."""
        modules = [*self.model.own_code, *(module for table in self.algorithm for module in table.own_code)]
        return list(dict.fromkeys(modules))

    @property
    def own_code_notices(self) -> list[str]:
        """Notices of foreign code that the experiment runs."""
        return own.own_code_notices([*self.named, *self.watch.loggers])

    @property
    def named(self) -> list[str]:
        """Names of models, algorithms and server rules: everything behind the result that may be the user's own."""
        models = [self.model, *(table.model for table in self.algorithm if table.model)]
        rules = [table.server.rule for table in self.algorithm]
        return [*(model.name for model in models), *(table.name for table in self.algorithm), *rules]

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
        config = self.to_toml()
        table = dict(config.pop("algorithm")[self.names.index(name)])
        own_tables = [key for key in ("local", "server", "model") if key in table]
        of_all = {key: value for key, value in config.items() if key not in ("watch", "modules")}
        return dict(flat({**of_all, **{key: table.pop(key) for key in own_tables}, "algorithm": table}))

    def to_toml(self) -> dict[str, Any]:
        """Return the experiment as tables of a file, every default included."""
        return self.model_dump(mode="json", exclude_none=True, serialize_as_any=True)


def _top_level(raw: Mapping[str, Any], tables: Sequence[str]) -> dict[str, Any]:
    top = checked(TopLevelKeys, raw, "", besides=tables)
    if top.epochs is None:
        return {**top.model_dump(), "rounds": ROUNDS if top.rounds is None else top.rounds}
    if top.rounds is not None:
        both = (raw["rounds"], raw["epochs"])
        raise InputError(f"rounds, epochs = {both}: must be only one of them; remove the other")
    return top.model_dump()
