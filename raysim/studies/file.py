"""The study file: an experiment, and `[study]`, which says what of it is varied."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from raysim.common.errors import InputError
from raysim.config import own
from raysim.config.check import ConfigTable, checked, known, part
from raysim.config.experiment import Experiment
from raysim.config.read import assign, changed, read
from raysim.studies.grid import Point, Space, flat, in_order

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
"""What a data set of a study can be called: folders have its name."""

LOCATED = ("root", "population", "test")
"""Keys of `[data]` that may be paths."""


def _once(values: tuple[Any, ...]) -> tuple[Any, ...]:
    if len(set(values)) < len(values):
        raise ValueError("should name each only once")
    return values


Seeds = Annotated[tuple[Annotated[int, Field(ge=0, lt=2**63)], ...], Field(min_length=1), AfterValidator(_once)]
Folds = Annotated[tuple[Annotated[int, Field(ge=0)], ...], Field(min_length=1), AfterValidator(_once)]


class Tune(ConfigTable):
    """`[study.tune]`: where the grid is searched; by default everywhere."""

    seeds: Seeds | None = None
    folds: Folds | None = None


class StudyTable(ConfigTable):
    """`[study]`: what is varied, what is reported and what decides; grid, inherit and datasets are read apart."""

    seeds: Seeds | None = None
    folds: Annotated[int, Field(ge=0)] | None = None
    validation: Literal["next", "rotate"] = "next"
    metric: str | None = None
    select_by: str | None = None
    baseline: str | None = None
    tune: Tune = Tune()


@dataclass(frozen=True)
class Split:
    """What a trial is trained and tested on, beside its data set.

    Args:
        seed: of the training.
        fold: of the population that is tested; None for the clients that are held out as it is stored.
        validation: the fold for validation; likewise.
    """

    seed: int
    fold: int | None = None
    validation: int | None = None


@dataclass(frozen=True)
class DataSet:
    """One data set of a study: the experiment as it is there.

    Args:
        name: what its trials are called.
        raw: the experiment's tables.
        experiment: the same, resolved.
    """

    name: str
    raw: Mapping[str, Any]
    experiment: Experiment


@dataclass(frozen=True)
class Study:
    """A study, resolved.

    Args:
        table: `[study]`, every default written out but for the metric, which the populations decide.
        datasets: at least one.
        spaces: what is searched of each algorithm, by its folder's name; the sources of hyper-parameters come first.
        raw: its file: the experiment's tables, and `[study]` with grid, inherit and datasets.
    """

    table: StudyTable
    datasets: tuple[DataSet, ...]
    spaces: Mapping[str, Space]
    raw: Mapping[str, Any]

    @classmethod
    def of(cls, raw: Mapping[str, Any], folders: Sequence[Path] = ()) -> Study:
        """Check and resolve what a study file says.

        Args:
            raw: its tables, the base's included; see `read_study`.
            folders: where a user's own modules are looked for first.

        Raises:
            InputError: the table is wrong, or the experiment, on any data set and at any point of the grid.
        """
        given = part(raw, "study")
        table = checked(StudyTable, given, "study", besides=("grid", "inherit", "datasets"))
        bare = {**own.load_own_code({key: value for key, value in raw.items() if key != "study"}, folders)}
        changes = _changes(given)
        if "partition" in bare:
            partition = part(bare, "partition")
            bare["partition"] = _folded(partition, partition.get("folds", 0) if table.folds is None else table.folds)
        datasets = _datasets(bare, changes, folders)
        names = datasets[0].experiment.names
        spaces = in_order(names, part(given, "grid"), part(given, "inherit"))
        table = _resolved(table, datasets[0].experiment, bool(_searched(spaces)))
        if _searched(spaces):
            _check_rounds(datasets)
        _check_folds(datasets, table.folds or 0)
        study = cls(table, datasets, spaces, {})
        for dataset in datasets:
            _check(dataset, study)
        return replace(study, raw=_written(bare, given, changes, datasets))

    @property
    def names(self) -> list[str]:
        """The algorithms, in the file's order."""
        return self.datasets[0].experiment.names

    @property
    def finals(self) -> list[Split]:
        """Where every winner is run."""
        return self._splits(self.table.seeds or (), range(self.table.folds or 0))

    @property
    def tuning(self) -> list[Split]:
        """Where the points of a grid are compared."""
        tune = self.table.tune
        return self._splits(tune.seeds or (), tune.folds or ())

    def _splits(self, seeds: Sequence[int], folds: Iterable[int]) -> list[Split]:
        count = self.table.folds or 0
        if not count:
            return [Split(seed) for seed in seeds]
        steps = range(1, count if self.table.validation == "rotate" else 2)
        return [Split(seed, fold, (fold + step) % count) for seed, fold, step in product(seeds, folds, steps)]

    def to_toml(self) -> dict[str, Any]:
        """The study as it would be written in a file, what stands in the base and every default included."""
        table = self.table.model_dump(mode="json", exclude_none=True)
        return {**self.raw, "study": {**table, **self.raw["study"]}}


def read_study(source: str | Path, changes: Iterable[str] = ()) -> dict[str, Any]:
    """Read a study file, or a recipe by its name: with its base, and changes applied.

    Args:
        source: path of a TOML file, or a recipe's name.
        changes: `key.path=value` each; see `raysim.config.read`.

    Raises:
        InputError: there is no such file or base, or it is no study.
    """
    folder = Path(source).resolve().parent if Path(source).is_file() else None
    return completed(read(source), changes, folder, f"{str(source)!r}")


def completed(
    raw: Mapping[str, Any], changes: Iterable[str] = (), folder: Path | None = None, name: str = "the file"
) -> dict[str, Any]:
    """A study's tables with those of its base, and changes applied.

    Args:
        raw: the tables; those beside `[study]` change the base as `--set` would, `[[algorithm]]` takes the place of
            the base's.
        changes: `key.path=value` each.
        folder: where a base is looked for first.
        name: of the study, for messages.

    Raises:
        InputError: there is no such base, or this is no study.
    """
    if "study" not in raw:
        raise InputError(f"{name} has no [study] table: must have one; add it, or use `raysim run` for one experiment")
    if "base" not in raw:
        return changed(raw, changes)
    base, beside = raw["base"], folder and folder / str(raw["base"])
    whole = read(beside if beside and beside.is_file() else str(base))
    if "base" in whole or "study" in whole:
        raise InputError(f"base = {base!r}: must be an experiment, and is a study; name the experiment that it has")
    for key, value in raw.items():
        if key == "study" or isinstance(value, list):
            whole[key] = value
        elif key != "base":
            for path, leaf in flat({key: value}).items():
                assign(whole, path.split("."), leaf, path)
    return changed(whole, changes)


def _folded(partition: Mapping[str, Any], folds: int) -> dict[str, Any]:
    """`[partition]` with so many folds, in place of clients that are held out."""
    away = {"fold", "validation"} | ({"test_clients", "validation_clients"} if folds else set())
    return {**{key: value for key, value in partition.items() if key not in away}, "folds": folds}


def _changes(given: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """What each data set changes of the experiment, by key paths."""
    changes = part(given, "datasets")
    for name, table in changes.items():
        if not NAME.fullmatch(name):
            raise InputError(f"study.datasets.{name!r}: must be of letters, digits and . _ -; rename it")
        if not isinstance(table, dict):
            raise InputError(
                f"study.datasets.{name} = {table!r}: must be a table; write its key paths and values below"
            )
    return {name: flat(table) for name, table in changes.items()}


def _datasets(
    bare: Mapping[str, Any], changes: Mapping[str, Mapping[str, Any]], folders: Sequence[Path]
) -> tuple[DataSet, ...]:
    if not changes:
        experiment = Experiment.of(bare, folders)
        return (DataSet(_called(experiment), bare, experiment),)
    datasets = []
    for name, table in changes.items():
        raw = deepcopy(dict(bare))
        for path, value in table.items():
            assign(raw, path.split("."), value, f"study.datasets.{name}.{path}")
        try:
            datasets.append(DataSet(name, raw, Experiment.of(raw, folders)))
        except InputError as error:
            raise InputError(f"study.datasets.{name}: {error}") from None
    for each in datasets[1:]:
        if each.experiment.names != datasets[0].experiment.names:
            raise InputError(
                f"study.datasets.{each.name}: its algorithms ({', '.join(each.experiment.names)}) must be those of "
                f"{datasets[0].name} ({', '.join(datasets[0].experiment.names)}); leave algorithm.name as it is"
            )
    return tuple(datasets)


def _check_rounds(datasets: Sequence[DataSet]) -> None:
    """That no test decides, by the choice of the round, what a point is worth."""
    for each in datasets:
        evaluate = each.experiment.evaluate
        if evaluate.select == "best" and not evaluate.select_by.startswith("validation_"):
            raise InputError(
                f"{each.name}: evaluate.select_by = {evaluate.select_by!r} with study.grid: must be a column of the "
                "validation clients, for what is tested must not say which round's model a point is compared by; set "
                'evaluate.select_by = "validation_accuracy"'
            )


def _check_folds(datasets: Sequence[DataSet], folds: int) -> None:
    for each in datasets:
        if (there := each.experiment.partition) is not None and there.folds != folds:
            raise InputError(
                f"study.datasets.{each.name}: partition.folds = {there.folds} must be study.folds = {folds}; leave "
                "folds and held-out clients of a data set as they are"
            )


def _called(experiment: Experiment) -> str:
    """What the only data set is called."""
    data = experiment.data
    told = data.dataset or Path(data.population or "").name
    if told.startswith(("file:", "folder:")):
        told = Path(told.partition(":")[2]).stem
    return re.sub(r"[^A-Za-z0-9._-]", "-", told).strip("-._") or "data"


def _resolved(table: StudyTable, experiment: Experiment, searches: bool) -> StudyTable:
    """The table with its defaults; InputError where it does not fit the experiment."""
    seeds = table.seeds or (experiment.seed,)
    folds = table.folds if table.folds is not None else getattr(experiment.partition, "folds", 0)
    select_by = table.select_by or experiment.evaluate.select_by
    if searches and not select_by.startswith("validation_"):
        raise InputError(
            f"study.select_by = {select_by!r} with study.grid: must be a column of the validation clients, for what "
            'is tested must not decide; set study.select_by = "validation_accuracy"'
        )
    names = experiment.names
    baseline = table.baseline or ("fedavg" if "fedavg" in names else names[0])
    known("study.baseline", baseline, dict.fromkeys(names))
    tune = Tune(seeds=table.tune.seeds or seeds, folds=table.tune.folds or tuple(range(folds)) or None)
    beyond = [fold for fold in tune.folds or () if fold >= folds]
    if beyond:
        allowed = f"0 to {folds - 1}" if folds else "left out, for there are no folds"
        raise InputError(f"study.tune.folds = {list(tune.folds or ())}: must be {allowed}; correct it")
    update = {"seeds": seeds, "folds": folds, "select_by": select_by, "baseline": baseline, "tune": tune}
    return table.model_copy(update=update)


def _searched(spaces: Mapping[str, Space]) -> list[str]:
    """The algorithms of which there is something to choose."""
    return [name for name, space in spaces.items() if space.size > 1]


def first_points(dataset: DataSet, spaces: Mapping[str, Space]) -> dict[str, Point]:
    """A point for each algorithm: the first, where all that it inherits from are at their first."""
    points: dict[str, Point] = {}
    tables: dict[str, dict[str, Any]] = {}
    for name, space in spaces.items():
        points[name] = space.points(space.inherited(tables))[0]
        tables[name] = space.table(space.at(dataset.raw, points[name]))
    return points


def _check(dataset: DataSet, study: Study) -> None:
    """Check every point that an algorithm may be run at, inherited values one at a time.

    Raises:
        InputError: the first that is wrong.
    """
    tables: dict[str, list[dict[str, Any]]] = {}
    for name, space in study.spaces.items():
        choices = {
            key: list({json.dumps(value): value for value in map(source.value, tables[source.algorithm])}.values())
            for key, source in space.inherit.items()
        }
        first = {key: values[0] for key, values in choices.items()}
        points = space.points(first)
        points += [{**points[0], key: value} for key, values in choices.items() for value in values[1:]]
        try:
            tables[name] = [space.table(space.at(dataset.raw, point)) for point in points]
        except InputError as error:
            place = f"study.datasets.{dataset.name}, " if len(study.datasets) > 1 else ""
            raise InputError(f"{place}study.grid or study.inherit of {name}: {error}") from None


def _written(
    bare: Mapping[str, Any],
    given: Mapping[str, Any],
    changes: Mapping[str, Mapping[str, Any]],
    datasets: Sequence[DataSet],
) -> dict[str, Any]:
    """The tables for a file that means the same from anywhere: paths are absolute."""
    modules = dict.fromkeys(path for each in datasets for path in each.experiment.modules or ())
    raw = {**bare, **({"modules": list(modules)} if modules else {})}
    located = {each.name: _located(each.experiment) for each in datasets}
    raw["data"] = {**part(bare, "data"), **(located[datasets[0].name] if not changes else {})}
    study: dict[str, Any] = {key: {name: flat(part(part(given, key), name)) for name in part(given, key)}
                             for key in ("grid", "inherit")}  # fmt: skip
    if changes:
        study["datasets"] = {
            name: {**table, **{f"data.{key}": value for key, value in located[name].items()}}
            for name, table in changes.items()
        }
    return {**raw, "study": study}


def _located(experiment: Experiment) -> dict[str, str]:
    data = experiment.data
    return {key: getattr(data, key) for key in LOCATED if isinstance(getattr(data, key), str)}
