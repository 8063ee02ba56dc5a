"""Views of a population for pictures: its tables, and its clients grouped into columns of a drawable number."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from partitioning.common.checks import Floats, Integers
from partitioning.common.columns import Label
from partitioning.store.population import Population

NAMED = 25
"""Largest number of clients that are named one by one on the axis, in id order."""

_MOST_COLUMNS = 250  # narrower columns exceed the resolution of a picture of usual width

Groups = Sequence[Integers]
"""Clients of each column of a picture."""


@dataclass(frozen=True)
class View:
    """Tables of a population for pictures.

    Args:
        name: headline of its pictures.
        class_counts: samples per client and class [K, C].
        classes: label of each class [C].
        features: samples per client and category of each feature [K, d].
        categories: names of each feature's categories [d]; numbers if absent.
    """

    name: str
    class_counts: Integers
    classes: Sequence[Label]
    features: Mapping[str, Integers] = field(default_factory=dict)
    categories: Mapping[str, Sequence[str]] = field(default_factory=dict)

    @classmethod
    def of(cls, population: Population, name: str) -> "View":
        """View a population on disk."""
        manifest = population.manifest
        categories = {feature.name: feature.titles for feature in manifest.features}
        return cls(name, population.class_counts, manifest.classes, population.feature_counts, categories)

    @cached_property
    def sizes(self) -> Integers:
        """Samples per client [K]."""
        sizes: Integers = self.class_counts.sum(axis=1)
        return sizes


def group_clients(counts: Integers) -> Groups:
    """Group clients into columns of similar clients, so that columns of many clients still show differences.

    Clients are sorted by their largest class or category and its share; clients without samples come last. At most
    `NAMED` clients keep their order and get a column each.

    Args:
        counts: samples per client and class or category [K, C].
    """
    clients = len(counts)
    if clients <= NAMED:
        return np.array_split(np.arange(clients), clients)
    sizes = counts.sum(axis=1)
    largest = np.where(sizes > 0, counts.argmax(axis=1), counts.shape[1])
    order = np.lexsort((-counts.max(axis=1) / np.maximum(sizes, 1), largest))
    return np.array_split(order, min(clients, _MOST_COLUMNS))


def column_edges(groups: Groups) -> Integers:
    """Return the left edge of each column and the right edge of the last, in clients."""
    return np.cumsum([0, *(len(group) for group in groups)])


def mean_counts(groups: Groups, counts: Integers) -> Floats:
    """Return the mean samples per client of each column and class [B, C]."""
    return np.stack([counts[group].mean(axis=0) for group in groups])


def mean_shares(groups: Groups, counts: Integers) -> Floats:
    """Return the mean class shares of each column's clients with samples [B, C]; 0 without any."""
    return np.stack([_mean_shares(counts[group]) for group in groups])


def share_classes(views: Sequence[View]) -> list[View]:
    """Return the views with the union of their classes, in one order."""
    found = [[_typed(label) for label in view.classes] for view in views]
    if all(labels == found[0] for labels in found):
        return list(views)
    labels = sorted(set().union(*found))
    places = {label: place for place, label in enumerate(labels)}
    classes = [label for _, label in labels]
    return [replace(view, classes=classes, class_counts=_spread(view, places)) for view in views]


def _spread(view: View, places: Mapping[tuple[str, Label], int]) -> Integers:
    counts = np.zeros((len(view.class_counts), len(places)), dtype=np.int64)
    counts[:, [places[_typed(label)] for label in view.classes]] = view.class_counts
    return counts


def _typed(label: Label) -> tuple[str, Label]:
    return type(label).__name__, label  # numbers do not compare with strings, and True is not the class 1


def _mean_shares(counts: Integers) -> Floats:
    sizes = counts.sum(axis=1)
    filled = sizes > 0
    if not filled.any():
        return np.zeros(counts.shape[1])
    shares: Floats = (counts[filled] / sizes[filled, None]).mean(axis=0)
    return shares
