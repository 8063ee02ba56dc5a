"""The population of an experiment: made in the run's folder, or opened where it is."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

import partitioning
from algorithms import Purpose, generator
from partitioning import Population
from partitioning.schemes import parameters
from raysim.config import Experiment
from raysim.config.experiment import Data, Partition
from raysim.data import Source, load
from raysim.data.augment import chain
from raysim.data.prepare import of_classes, of_split, taken, with_copies
from raysim.errors import InputError


def population_of(experiment: Experiment, folder: Path) -> Population:
    """Open the population that the experiment names, or make it; in the view of its fold, where it names one.

    Args:
        experiment: its `[data]` and `[partition]`.
        folder: where a made one goes; must not exist.

    Raises:
        InputError: the data, the partition or the population's files are not as they must be.
    """
    data, partition = experiment.data, experiment.partition
    if partition is None:
        return Population.open(Path(str(data.population)).expanduser(), data.fold)
    dividing = [str(getattr(partition, each.name)) for each in parameters(partition.scheme).values() if each.is_column]
    train, test, source = _tables(data, dividing, experiment.seed)
    population = partitioning.make(
        train,
        folder,
        scheme=partition.scheme,
        clients=partition.clients,
        seed=experiment.seed,
        label=source.label,
        test=test,
        test_clients=partition.test_clients,
        validation_clients=partition.validation_clients,
        folds=partition.folds,
        stratify=partition.stratify,
        local_test=partition.local_test,
        features=partition.features,
        buckets=partition.buckets,
        dataset=source.name,
        **partition.beyond(Partition),
    )
    return population if partition.fold is None else population.fold(partition.fold)


def _tables(data: Data, dividing: Sequence[str], seed: int) -> tuple[pa.Table, pa.Table | None, Source]:
    """The rows to be partitioned, the global test set, and the data set that they are of."""
    source = _chosen(load(str(data.dataset), root=data.root, label=data.label, dividing=dividing), data)
    train, test = _with_test(source, data, dividing, seed)
    if data.appends:
        train = with_copies(train, source.label, dividing, chain(data.changes, data.strengths), seed)
    return train, test, source


def _chosen(source: Source, data: Data) -> Source:
    source = of_split(source, data.split)
    return source if data.classes is None else of_classes(source, data.classes)


def _with_test(source: Source, data: Data, dividing: Sequence[str], seed: int) -> tuple[pa.Table, pa.Table | None]:
    """The training table and the global test set: the data set's own, a second table, or a share of the rows."""
    if not data.test:
        return source.train, source.test
    if source.test is not None:
        raise InputError(
            f"data.test = {data.test!r}: must be left out, for {source.name} has a test set of its own; remove it"
        )
    if isinstance(data.test, str):
        test = load(data.test, label=source.label, dividing=dividing)
        return source.train, (test if data.classes is None else of_classes(test, data.classes)).train
    rows = generator(seed, Purpose.TEST_ROWS).permutation(source.train.num_rows)
    cut = max(1, int(data.test * len(rows)))
    return taken(source.train, np.sort(rows[cut:])), taken(source.train, np.sort(rows[:cut]))
