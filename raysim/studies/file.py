"""The study file: an experiment, and `[study]`, which varies it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from raysim.common.errors import InputError, each_error
from raysim.config import own
from raysim.config.check import UnknownKeyError, checked, flat, part
from raysim.config.experiment import Experiment
from raysim.config.read import Change, apply, changed, read
from raysim.studies.grid import SearchSpace, algorithm_table, inherited_value, ordered_spaces
from raysim.studies.keys import StudyTable, resolved_table
from raysim.studies.split import Split

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
"""Allowed names of data sets, which are also names of folders."""

LOCATED = (
    *("data.root", "data.population", "data.test", "data.text.tokenizer"),
    *("devices.table", "model.weights", "model.pretrained"),
)
"""Keys that may hold paths."""


@dataclass(frozen=True)
class StudyData:
    """One data set of a study.

    Args:
        name: name of the data set in the study.
        raw: tables of the experiment on it.
        experiment: the same, resolved.
    """

    name: str
    raw: Mapping[str, Any]
    experiment: Experiment


@dataclass(frozen=True)
class Study:
    """Resolved study.

    Args:
        table: `[study]` with every default, except the metric: the populations decide it.
        datasets: at least one.
        spaces: hyper-parameters to search, by the algorithm's folder; sources of inherited values come first.
        raw: tables of its file: the experiment's, and `[study]` with grid, inherit and datasets.
    """

    table: StudyTable
    datasets: tuple[StudyData, ...]
    spaces: Mapping[str, SearchSpace]
    raw: Mapping[str, Any]

    @classmethod
    def of(cls, raw: Mapping[str, Any], folders: Sequence[Path] = ()) -> Study:
        """Check and resolve the tables of a study file.

        Args:
            raw: tables of the file, with those of its base; see `read_study`.
            folders: folders that are searched first for a user's own modules.

        Raises:
            InputError: `[study]` is wrong, or the experiment is, on any data set and at any point of the grid.
        """
        given = part(raw, "study")
        table = checked(StudyTable, given, "study", besides=("grid", "inherit", "datasets"))
        bare = {**own.load_own_code({key: value for key, value in raw.items() if key != "study"}, folders)}
        changes = _changes(given)
        if "partition" in bare:
            partition = part(bare, "partition")
            bare["partition"] = _folded(partition, partition.get("folds", 0) if table.folds is None else table.folds)
        # A study shows means over clients, so that each trial would score every client for nothing.
        bare["evaluate"] = {"clients": False, **part(bare, "evaluate")}
        datasets = _datasets(bare, changes, folders, table.folds or 0)
        names = datasets[0].experiment.names
        spaces = ordered_spaces(names, part(given, "grid", "study"), part(given, "inherit", "study"))
        has_search = any(space.size > 1 for space in spaces.values())
        table = resolved_table(table, datasets[0].experiment, has_search)
        for dataset in datasets:
            _check_dataset(dataset, table, has_search)
        modules = [path for each in datasets for path in _check_points(each, spaces, len(datasets) > 1, folders)]
        return cls(table, datasets, spaces, _written(bare, given, changes, datasets, modules))

    @property
    def names(self) -> list[str]:
        """Algorithms in the file's order."""
        return self.datasets[0].experiment.names

    @property
    def finals(self) -> list[Split]:
        """Splits on which every winner runs."""
        return self._splits(self.table.seeds or (), range(self.table.folds or 0), self.partitions)

    @property
    def tuning(self) -> list[Split]:
        """Splits on which the search compares the points of a grid."""
        tune = self.table.tune
        return self._splits(tune.seeds or (), tune.folds or (), tune.partition_seeds or self.partitions)

    @property
    def partitions(self) -> Sequence[int | None]:
        """Seeds of the partition; None alone for the file's own seed."""
        return self.table.partition_seeds or (None,)

    def _splits(self, seeds: Sequence[int], folds: Iterable[int], partitions: Sequence[int | None]) -> list[Split]:
        count = self.table.folds or 0
        if not count:
            return [Split(seed, partition=drawn) for drawn, seed in product(partitions, seeds)]
        steps = range(1, count if self.table.validation == "rotate" else 2)
        return [
            Split(seed, fold, (fold + step) % count, drawn)
            for drawn, seed, fold, step in product(partitions, seeds, folds, steps)
        ]

    def to_toml(self) -> dict[str, Any]:
        """Return the study as the tables of a file, with its base and every default."""
        table = self.table.model_dump(mode="json", exclude_none=True)
        return {**self.raw, "study": {**table, **self.raw["study"]}}


def read_study(source: str | Path, changes: Iterable[str] = ()) -> dict[str, Any]:
    """Read a study file, or a recipe, with its base; apply changes.

    Args:
        source: path of a TOML file, or a recipe's name.
        changes: `key.path=value` each; see `raysim.config.read`.

    Raises:
        InputError: the file or its base does not exist, or the file is no study.
    """
    path = Path(source)
    is_path = path.suffix != ".toml" and str(source) != path.name
    if is_path and not path.exists() and not path.with_name(f"{path.name}.toml").is_file():
        raise InputError(
            f"study {str(source)!r}: must be a file, or the folder of a study, that exists; check the path"
        )
    folder = path.resolve().parent if path.is_file() else None
    return completed(read(source), changes, folder, f"{str(source)!r}")


def completed(
    raw: Mapping[str, Any], changes: Iterable[str] = (), folder: Path | None = None, name: str = "the file"
) -> dict[str, Any]:
    """Return a study's tables with those of its base; apply changes.

    Args:
        raw: tables of the study. Keys beside `[study]` change the base as `--set` would; `[[algorithm]]` replaces
            the base's.
        changes: `key.path=value` each.
        folder: folder that is searched first for the base.
        name: name of the study, for messages.

    Raises:
        InputError: the base does not exist, or this is no study.
    """
    if "study" not in raw:
        raise InputError(f"{name} has no [study] table: must have one; add it, or use `raysim run` for one experiment")
    if "base" not in raw:
        return changed(raw, changes)
    base, beside = raw["base"], folder and folder / str(raw["base"])
    whole = read(beside if beside and beside.is_file() else str(base))
    if "base" in whole or "study" in whole:
        raise InputError(
            f"base = {base!r}: must be an experiment, and is a study; name the experiment that it is based on"
        )
    lists = {key: value for key, value in raw.items() if key == "study" or isinstance(value, list)}
    common = {key: value for key, value in raw.items() if key not in lists and key != "base"}
    whole |= lists
    apply(whole, (_change(path, leaf, path) for path, leaf in _leaves(common).items()))
    return changed(whole, changes)


def _folded(partition: Mapping[str, Any], folds: int) -> dict[str, Any]:
    """Return `[partition]` with folds instead of held-out clients."""
    away = {"fold", "validation"} | ({"test_clients", "validation_clients"} if folds else set())
    return {**{key: value for key, value in partition.items() if key not in away}, "folds": folds}


def _changes(given: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the changes that each data set makes to the experiment, by key paths."""
    changes = part(given, "datasets", "study")
    for name, table in changes.items():
        if not NAME.fullmatch(name):
            raise InputError(f"study.datasets.{name!r}: must consist of letters, digits and . _ -; rename it")
        if not isinstance(table, dict):
            raise InputError(
                f"study.datasets.{name} = {table!r}: must be a table; write its key paths and values below"
            )
    return {name: _leaves(table) for name, table in changes.items()}


def _leaves(table: Mapping[str, Any]) -> dict[str, Any]:
    """Return values by dotted keys; an empty table, such as `[devices]` with all its defaults, is one of them."""
    found: dict[str, Any] = {}
    for key, value in table.items():
        inner = _leaves(value) if isinstance(value, dict) else {}
        found |= {f"{key}.{below}": leaf for below, leaf in inner.items()} or {key: value}
    return found


def _change(path: str, value: Any, what: str) -> Change:
    """Return a change of a key; an empty table is added if it is missing, and otherwise stays."""
    # A change that removes a key makes the tables on its way.
    return Change(f"{path}.", None, what) if isinstance(value, dict) else Change(path, value, what)


def _datasets(
    bare: Mapping[str, Any], changes: Mapping[str, Mapping[str, Any]], folders: Sequence[Path], folds: int
) -> tuple[StudyData, ...]:
    if not changes:
        raw = dict(bare)
        _divide(raw, folds)
        experiment = Experiment.of(raw, folders)
        return (StudyData(_default_name(experiment), raw, experiment),)
    datasets = []
    for name, table in changes.items():
        raw = deepcopy(dict(bare))
        apply(raw, (_change(path, value, f"study.datasets.{name}.{path}") for path, value in table.items()))
        try:
            _divide(raw, folds)
            datasets.append(StudyData(name, raw, Experiment.of(raw, folders)))
        except InputError as error:
            raise InputError(f"study.datasets.{name}: {error}") from None
    for each in datasets[1:]:
        if each.experiment.names != datasets[0].experiment.names:
            raise InputError(
                f"study.datasets.{each.name}: its algorithms ({', '.join(each.experiment.names)}) must be those of "
                f"{datasets[0].name} ({', '.join(datasets[0].experiment.names)}); leave algorithm.name as it is"
            )
    return tuple(datasets)


def _divide(raw: dict[str, Any], folds: int) -> None:
    """Divide the clients into the folds of the study if no `[partition]` of the file says how many."""
    if folds and part(raw, "data").get("population") is None:
        raw["partition"] = {"folds": folds, **part(raw, "partition")}


def _check_dataset(dataset: StudyData, table: StudyTable, has_search: bool) -> None:
    """Raise InputError if a data set's evaluation, folds or clients do not fit the study."""
    evaluate, partition = dataset.experiment.evaluate, dataset.experiment.partition
    for rule, columns in evaluate.selection.decides.items() if has_search else ():
        if (column := next((each for each in columns if not each.startswith("validation_")), None)) is not None:
            by_target = "until_target" in rule
            key = f"evaluate.target.{column}" if by_target else f"evaluate.select_by = {column!r}"
            beside = f"{rule} and " if by_target else ""
            other = "evaluate.until_target = false" if by_target else 'evaluate.select_by = "validation_accuracy"'
            raise InputError(
                f"{dataset.name}: {key} with {beside}study.grid: must be a column of the validation clients, because "
                f"test data must not select the model that the search compares; set {other}"
            )
    if partition is not None and partition.folds != (table.folds or 0):
        raise InputError(
            f"study.datasets.{dataset.name}: partition.folds = {partition.folds} must be study.folds = "
            f"{table.folds or 0}; leave folds and held-out clients of a data set as they are"
        )
    if partition is None and table.partition_seeds:
        raise InputError(
            f"study.partition_seeds = {list(table.partition_seeds)} with data.population of {dataset.name}: must be "
            "left out, because its clients already exist; remove it, or name the data set"
        )


def _default_name(experiment: Experiment) -> str:
    data = experiment.data
    source = data.dataset or Path(data.population or "").name
    if source.startswith(("file:", "folder:")):
        source = Path(source.partition(":")[2]).stem
    return re.sub(r"[^A-Za-z0-9._-]", "-", source).strip("-._") or "data"


def varied_points(dataset: StudyData, spaces: Mapping[str, SearchSpace]) -> Iterator[tuple[SearchSpace, Experiment]]:
    """Yield experiments that hold each key's values: an algorithm's first point, then one change at a time.

    Of many numbers these are the first, the smallest and the largest, because a model or population bounds numbers and
    a plan may take a second. A grid of n x m other values has n + m - 1 experiments.
    """
    tables: dict[str, list[dict[str, Any]]] = {}
    for name, space in spaces.items():
        choices = {**space.grid, **_inherited_choices(space, tables)}
        first = {key: values[0] for key, values in choices.items()}
        changes = [{key: value} for key, values in choices.items() for value in _ends(values)[1:]]
        experiments = [space.at(dataset.raw, {**first, **change}) for change in ({}, *changes)]
        tables[name] = [algorithm_table(each) for each in experiments]
        yield from ((space, each) for each in experiments)


def _ends(values: Sequence[Any]) -> list[Any]:
    """Return the values of a key; of more than three numbers the first, the smallest and the largest."""
    if len(values) <= 3 or not all(isinstance(each, int | float) and not isinstance(each, bool) for each in values):
        return list(values)
    return list(dict.fromkeys((values[0], min(values), max(values))))


def _inherited_choices(
    space: SearchSpace, tables: Mapping[str, Sequence[Mapping[str, Any]]]
) -> dict[str, tuple[Any, ...]]:
    """Return the distinct values of each inherited key, given the resolved tables of the sources."""
    choices = {}
    for key, source in space.inherit.items():
        values = [inherited_value(source, table) for table in tables[source[0]]]
        choices[key] = tuple({json.dumps(each): each for each in values}.values())
    return choices


def _check_points(
    dataset: StudyData, spaces: Mapping[str, SearchSpace], several: bool, folders: Sequence[Path]
) -> list[str]:
    """Check every point that an algorithm may run at, inherited values one at a time.

    Returns:
        folders of the user's own modules behind all points.

    Raises:
        InputError: the first wrong point.
    """
    tables: dict[str, list[dict[str, Any]]] = {}
    modules: list[str] = []
    for name, space in spaces.items():
        choices = _inherited_choices(space, tables)
        first = {key: values[0] for key, values in choices.items()}
        points = space.points(first)
        points += [{**points[0], key: value} for key, values in choices.items() for value in values[1:]]
        try:
            experiments = [space.at(dataset.raw, point, folders) for point in points]
        except InputError as error:
            place = f"study.datasets.{dataset.name}, " if several else ""
            raise InputError(f"{place}study.grid or study.inherit of {name}: {_of_the_run(error) or error}") from None
        tables[name] = [algorithm_table(each) for each in experiments]
        modules += [path for each in experiments for path in each.modules or ()]
    return modules


def _of_the_run(error: InputError) -> str:
    """Return the message for a key of the run that was given as one of an algorithm; "" if there is none."""
    for each in each_error(error):
        if isinstance(each, UnknownKeyError) and each.where == "algorithm" and each.name in Experiment.model_fields:
            remedy = "study.seeds" if each.name == "seed" else "study.datasets, or set it for all trials beside [study]"
            return f"{each.name}: must be a key of an algorithm, and is one of the whole run; vary it by {remedy}"
    return ""


def _written(
    bare: Mapping[str, Any],
    given: Mapping[str, Any],
    changes: Mapping[str, Mapping[str, Any]],
    datasets: Sequence[StudyData],
    modules: Iterable[str],
) -> dict[str, Any]:
    """Return the tables for a file with absolute paths, which means the same in any folder."""
    of_own = list(dict.fromkeys(modules))
    raw = deepcopy({**bare, **({"modules": of_own} if of_own else {})})
    located = {each.name: _located(each.experiment) for each in datasets}
    if not changes:
        apply(raw, (Change(path, value, path) for path, value in located[datasets[0].name].items()))
    study: dict[str, Any] = {
        key: {name: dict(flat(part(part(given, key), name))) for name in part(given, key)}
        for key in ("grid", "inherit")
    }
    if changes:
        study["datasets"] = {name: {**table, **located[name]} for name, table in changes.items()}
    return {**raw, "study": study}


def _located(experiment: Experiment) -> dict[str, str]:
    values = dict(flat(experiment.to_toml()))
    return {path: values[path] for path in LOCATED if isinstance(values.get(path), str) and values[path]}
