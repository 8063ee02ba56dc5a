"""What pictures show of a population: its tables, and its clients in an order and a number that can be drawn."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from partitioning.common.checks import Floats, Integers
from partitioning.common.columns import Label

if TYPE_CHECKING:
    from partitioning.store.population import Population

NAMED = 25
"""Up to so many clients each has its own name on the axis, and they stand in the order of their ids."""

_MOST_COLUMNS = 250  # more would be narrower than what a picture of usual width resolves


@dataclass(frozen=True)
class View:
    """A population as pictures show it.

    Args:
        name: heads its pictures.
        class_counts: samples a client and class [K, C].
        classes: the label of each class [C].
        features: of each feature, the samples a client and category [K, d].
        categories: of each feature, the names of its categories [d]; numbers where they are not given.
    """

    name: str
    class_counts: Integers
    classes: Sequence[Label]
    features: Mapping[str, Integers] = field(default_factory=dict)
    categories: Mapping[str, Sequence[str]] = field(default_factory=dict)

    @classmethod
    def of(cls, population: "Population", name: str) -> "View":
        """View a population on disk."""
        manifest = population.manifest
        categories = {feature.name: feature.titles for feature in manifest.features}
        return cls(name, population.class_counts, manifest.classes, population.feature_counts, categories)

    @cached_property
    def sizes(self) -> Integers:
        """Samples a client [K]."""
        sizes: Integers = self.class_counts.sum(axis=1)
        return sizes


@dataclass(frozen=True)
class Columns:
    """Clients in the order they are drawn in, neighbours in one column where there are too many.

    Args:
        groups: the clients of each column.
        are_named: each client has a column, in the order of their ids.
    """

    groups: Sequence[Integers]
    are_named: bool

    @property
    def edges(self) -> Integers:
        """Where columns begin and the last one ends, in clients."""
        return np.cumsum([0, *(len(group) for group in self.groups)])

    def means(self, counts: Integers) -> Floats:
        """Return the mean samples a client of each column and class [B, C]."""
        return np.stack([counts[group].mean(axis=0) for group in self.groups])

    def shares(self, counts: Integers) -> Floats:
        """Return the mean class shares of each column's clients that have samples [B, C]; 0 where none has any."""
        return np.stack([_mean_shares(counts[group]) for group in self.groups])


def arrange(counts: Integers) -> Columns:
    """Put clients beside those like them, so that columns that stand for many still show how they differ.

    Clients are ordered by the class, or category, that they have most of, then by its share; those without
    samples come last. A few clients, up to `NAMED`, keep the order of their ids.
    """
    clients = len(counts)
    if clients <= NAMED:
        return Columns(np.array_split(np.arange(clients), clients), are_named=True)
    sizes = counts.sum(axis=1)
    largest = np.where(sizes > 0, counts.argmax(axis=1), counts.shape[1])
    order = np.lexsort((-counts.max(axis=1) / np.maximum(sizes, 1), largest))
    return Columns(np.array_split(order, min(clients, _MOST_COLUMNS)), are_named=False)


def share_classes(views: Sequence[View]) -> list[View]:
    """Return the views with the same classes in the same order: those of any of them."""
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
    return type(label).__name__, label  # numbers do not compare with words, and True is not the class 1


def _mean_shares(counts: Integers) -> Floats:
    sizes = counts.sum(axis=1)
    filled = sizes > 0
    if not filled.any():
        return np.zeros(counts.shape[1])
    shares: Floats = (counts[filled] / sizes[filled, None]).mean(axis=0)
    return shares
