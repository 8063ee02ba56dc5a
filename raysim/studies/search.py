"""What the search of a grid saw: each point's trials by the metric that chose among them, never by a test metric."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from raysim.studies.read import Entry, Findings, keys_of


@dataclass(frozen=True)
class Point:
    """One point of a grid.

    Args:
        text: the point as JSON.
        values: the metric of its trials that have ended well.
        lost: how many have not.
        is_chosen: whether it won.
    """

    text: str
    values: tuple[float, ...]
    lost: int
    is_chosen: bool

    @property
    def keys(self) -> Mapping[str, Any]:
        return keys_of(self.text)

    @property
    def mean(self) -> float | None:
        """None where a trial was lost: such a point cannot win."""
        return float(np.mean(self.values)) if self.values and not self.lost else None

    @property
    def std(self) -> float | None:
        return float(np.std(self.values, ddof=1)) if self.mean is not None and len(self.values) > 1 else None


@dataclass(frozen=True)
class Search:
    """The points of one algorithm on one data set, as the search met them."""

    dataset: str
    algorithm: str
    points: tuple[Point, ...]

    @cached_property
    def axes(self) -> dict[str, list[Any]]:
        """The keys that all points have and that differ, and their values: numbers by size, others as they come."""
        points = [point.keys for point in self.points]
        common = [key for key in points[0] if all(key in point for point in points)]
        every = {key: _distinct(point[key] for point in points) for key in common}
        return {key: values for key, values in every.items() if len(values) > 1}


def searches_of(study: Findings) -> list[Search]:
    """Every search of two points or more."""
    found = [_search(study, dataset, name) for dataset in study.datasets for name in study.algorithms]
    return [each for each in found if len(each.points) > 1]


def _search(study: Findings, dataset: str, algorithm: str) -> Search:
    trials = study.of(dataset, algorithm)
    # The winner has run on all seeds and folds since: of it, too, only what the search saw.
    seen = {each.split for each in trials if not each.is_chosen}
    by_point: dict[str, list[Entry]] = {}
    for each in trials:
        if each.split in seen or not seen:
            by_point.setdefault(each.point, []).append(each)
    points = (_point(text, own, study.select_by) for text, own in by_point.items())
    return Search(dataset, algorithm, tuple(points))


def _point(text: str, trials: Sequence[Entry], select_by: str) -> Point:
    values = [value for each in trials if (value := each.value(select_by)) is not None]
    return Point(text, tuple(values), len(trials) - len(values), any(each.is_chosen for each in trials))


def _distinct(every: Iterable[Any]) -> list[Any]:
    values: list[Any] = []  # of any type that TOML has, lists too
    for each in every:
        if each not in values:
            values.append(each)
    return sorted(values) if all(isinstance(each, int | float) for each in values) else values
