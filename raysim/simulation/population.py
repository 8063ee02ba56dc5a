"""The population of an experiment: made in the run's folder, or opened in its own."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import partitioning
from algorithms import Purpose, generator
from partitioning import Population
from partitioning.common.casting import cast_like
from partitioning.common.checks import floor_share
from partitioning.making.testsets import check_tests
from partitioning.schemes.registry import parameters
from partitioning.store.remote import is_uri
from partitioning.store.writing import remove_population
from raysim.common.errors import InputError
from raysim.config.data import DataTable
from raysim.config.experiment import Experiment
from raysim.config.tables import PartitionTable
from raysim.data.arrays import take_rows
from raysim.data.catalogue import DATASETS, MEMORY, SHIFTED
from raysim.data.columns import PLAIN, ColumnRules
from raysim.data.domains import draw_per_domain, split_by_domain
from raysim.data.prepare import (
    append_augmented,
    draw_sample,
    joined_by_owner,
    rows_of_classes,
    select_classes,
    select_split,
)
from raysim.data.sources import LoadedDataSet, check_classes, load
from raysim.data.tokens import Tokenizer
from raysim.watching.progress import copy_progress

OF_TEST_SET = "data.test"
"""Value of `partition.local_test` that deals the global test set to the clients as their own test parts."""

OF_VIEW = ("fold", "validation")
"""Keys of `[partition]` that choose a view of the population, and do not change it."""


def population_of(
    experiment: Experiment,
    folder: Path,
    stage: Callable[[str], object] = lambda text: None,
    tell: Callable[[str], object] = lambda text: None,
) -> Population:
    """Open or make the population of an experiment, in the view of its fold.

    Args:
        experiment: experiment with its tables `[data]` and `[partition]`.
        folder: folder of a population that is made; a population already there is opened.
        stage: called with the progress of a fetch.
        tell: called with a line about a damaged population, which is made again.

    Raises:
        InputError: the data, the partition or the population's files are wrong.
    """
    data, partition = experiment.data, experiment.partition
    if partition is None:
        return opened(experiment, folder, stage)
    if folder.exists():
        try:
            return opened(experiment, folder, stage)
        except InputError as error:
            if str(data.dataset).startswith(MEMORY):
                raise InputError(f"{error}; its samples were data in memory: restore it, or start a new run") from None
            tell(f"the run's population cannot be read, and raysim makes it again ({error})")
    keys = [each.name for each in parameters(partition.scheme).values() if each.is_column]
    dividing = {str(getattr(partition, key)): f"partition.{key}" for key in keys}
    split = partition.local_test if partition.local_test != OF_TEST_SET else None
    own = {"site": partition.site, "by": partition.by, "local_test": split if isinstance(split, str) else None}
    dividing |= {name: f"partition.{key}" for key, name in own.items() if name is not None}
    train, tests, source = _tables(data, partition, dividing, experiment.seed)
    if folder.exists():  # only now, because the data may be gone
        remove_population(folder)
    missing = _rules(data).missing_allowed(train.schema, {source.label, *dividing})
    if partition.local_test == OF_TEST_SET:
        train, tests = _with_own_tests(train, tests, partition, source, missing), None
    with _named(partition):
        population = partitioning.make(
            train,
            folder,
            test=tests,
            dataset=source.name,
            seed=experiment.seed,
            label=source.label,
            missing=missing,
            **{key: value for key, value in partition if key not in OF_VIEW},
        )
    return population if partition.fold is None else population.fold(partition.fold, partition.validation)


def _with_own_tests(
    train: pa.Table,
    tests: pa.Table | Mapping[str, pa.Table] | None,
    partition: PartitionTable,
    source: LoadedDataSet,
    missing: Collection[str],
) -> pa.Table:
    """Return the rows with those of the global test set among them, marked as their owners' own test parts."""
    if partition.scheme != "natural":
        raise InputError(
            f'partition.local_test = "{OF_TEST_SET}" with partition.scheme = "{partition.scheme}": must go with '
            'clients that a column names; set partition.scheme = "natural"'
        )
    whole = check_tests(tests, train.schema, source.label, source.name, missing).get(None)
    if whole is None:
        raise InputError(
            f'partition.local_test = "{OF_TEST_SET}" without a global test set: must have one, with the column of the '
            'clients; set data.test = "file:PATH", or partition.local_test = 0.2'
        )
    return joined_by_owner(train, whole, str(getattr(partition, "column", None)), OF_TEST_SET)


@contextmanager
def _named(partition: PartitionTable) -> Iterator[None]:
    """Name the keys of the file in errors of the partitioner, which begin with its parameters."""
    try:
        yield
    except InputError as error:
        if str(error).partition(" ")[0] not in type(partition).model_fields:
            raise
        raise InputError(f"partition.{error}") from None


def opened(experiment: Experiment, folder: Path, stage: Callable[[str], object] = lambda text: None) -> Population:
    """Open a population that was made before; that of a URI as its copy in the cache. Arguments as in `population_of`.

    Its path is absolute, because actors may have another working folder.

    Raises:
        InputError: the folder is no population, or a file is damaged.
    """
    if (partition := experiment.partition) is not None:
        return Population.open(folder.absolute(), partition.fold, partition.validation)
    data, pinned = experiment.data, experiment.fleet.pinned
    name = str(data.population)
    if is_uri(name) and pinned:
        raise InputError(
            f"data.population = {name!r} with fleet.pinned = true: must be a folder in which each node has the samples "
            "of its own site; give its path"
        )
    path = partitioning.fetch(name, told=copy_progress(stage, f"fetching {name}")) if is_uri(name) else Path(name)
    # The driver needs no samples of a pinned population.
    return Population.open(path.expanduser().absolute(), data.fold, data.validation, sites=() if pinned else None)


def _tables(
    data: DataTable, partition: PartitionTable, dividing: Mapping[str, str], seed: int
) -> tuple[pa.Table, pa.Table | Mapping[str, pa.Table] | None, LoadedDataSet]:
    """Return the rows to partition, the global test set or one for each domain, and their data set."""
    needed = {**dict.fromkeys(partition.features, "partition.features"), **dividing}
    source = _read(data, "dataset", dividing, label=data.label, needed=needed, shifts=data.shifts, seed=seed)
    source = select_split(source, data.split)
    if data.classes is not None:
        source = select_classes(source, data.classes)
    train, test = _with_test(source, data, dividing, seed)
    if data.sample is not None:
        train, test = draw_sample(train, test, data.sample, seed)
    train, tests = _by_domain(train, test, data, partition, seed)
    if data.appends:
        train = append_augmented(train, source.label, dividing, data.changes, data.strengths, seed)
    return train, tests, source


def _read(data: DataTable, key: str, dividing: Collection[str], **given: Any) -> LoadedDataSet:
    """Load the data set of the key `dataset` or `test` by the rules that `[data]` has for both."""
    text = data.text
    try:
        return load(
            data.source(key),
            root=data.root,
            dividing=dividing,
            without=data.without or (),
            text=None if text is None else Tokenizer(text.tokenizer, text.columns, text.length, text.predict),
            rules=_rules(data),
            **given,
        )
    except InputError as error:
        if key == "dataset":
            raise
        # A reader does not know which key names its data set.
        raise InputError(re.sub(r"\bdata\.dataset(?= )", f"data.{key}", str(error))) from error


def _rules(data: DataTable) -> ColumnRules:
    return PLAIN if data.columns is None else data.columns.rules


def _with_test(
    source: LoadedDataSet, data: DataTable, dividing: Mapping[str, str], seed: int
) -> tuple[pa.Table, pa.Table | None]:
    """Return the training table and the global test set: the data set's own, a second table, or a share of the rows."""
    if not data.test:
        return _widened(source.train, source.test, {source.label, *dividing}), source.test
    if source.test is not None:
        raise InputError(
            f"data.test = {data.test!r}: must be left out, because {source.name} has its own test set; remove it"
        )
    if isinstance(data.test, str):
        _check_apart(data, data.test, dividing)
        label = data.label or (source.label if data.text is None or data.text.predict == "label" else None)
        test = _read(data, "test", dividing, label=label, like=source.train.schema)
        if test.test is not None:
            raise InputError(
                f"data.test = {data.test!r}: must have no test set of its own, so that the rows to test on are clear; "
                "name a table of them"
            )
        chosen = test.train if data.classes is None else rows_of_classes(test.train, test.label, data.classes)
        check_classes(source.train, chosen, source.label, data.test)
        return _widened(source.train, chosen, {source.label, *dividing}), chosen
    rows = generator(seed, Purpose.TEST_ROWS).permutation(source.train.num_rows)
    cut = max(1, int(floor_share(data.test, len(rows))))
    return take_rows(source.train, np.sort(rows[cut:])), take_rows(source.train, np.sort(rows[:cut]))


def _check_apart(data: DataTable, test: str, dividing: Mapping[str, str]) -> None:
    """Refuse a named test set with rows that would train; your own files may be both, to measure how training went."""
    dataset = str(data.dataset).strip().removeprefix(SHIFTED)
    if test not in DATASETS:
        return
    if test == dataset:
        raise InputError(
            f"data.test = {test!r}: must have other rows than data.dataset, because these train; set data.test = 0.2 "
            "for a share of them"
        )
    if DATASETS[test].test_of == dataset and dividing.get("split") != "partition.local_test":
        raise InputError(
            f"data.test = {test!r} with data.dataset = {dataset!r}: must stand with partition.local_test = "
            '"split", because these rows would train, too; set it'
        )


def _widened(train: pa.Table, test: pa.Table | None, besides: Collection[str]) -> pa.Table:
    """Return the training table with whole numbers as floats where the test table has fractions."""
    whole = [each.name for each in train.schema if pa.types.is_integer(each.type) and each.name not in besides]
    there = [] if test is None else [test.schema.field(name) for name in whole if name in test.schema.names]
    return cast_like(train, pa.schema([each for each in there if pa.types.is_floating(each.type)]))


def _by_domain(
    train: pa.Table, test: pa.Table | None, data: DataTable, partition: PartitionTable, seed: int
) -> tuple[pa.Table, pa.Table | Mapping[str, pa.Table] | None]:
    """Give each domain its own test set and its number of rows, if clients are of domains."""
    column = getattr(partition, "domain", None)
    if column is None:
        if data.per_domain is not None:
            raise InputError(
                f"data.per_domain = {data.per_domain} with partition.scheme = {partition.scheme!r}: must go with "
                'clients of domains; set partition.scheme = "domains"'
            )
        return train, test
    if any(column not in part.schema.names for part in (train, test) if part is not None):
        return train, test  # the partitioner reports the missing column
    if data.per_domain is not None:
        train = draw_per_domain(train, column, data.per_domain, seed)
    return train, None if test is None else split_by_domain(test, column)
