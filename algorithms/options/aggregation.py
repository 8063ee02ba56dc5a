"""The part `aggregate`: turn a cohort's models into one, by their mean or by a rule that a few of them cannot move."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import floor, inf, sqrt
from types import MappingProxyType
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from algorithms.core.errors import require

Values: TypeAlias = NDArray[np.float64]

EXCESS = 1e-6
"""Largest excess of a geometric median's sum of distances over the smallest sum, as a share of it."""


@dataclass(frozen=True)
class Mean:
    """Mean of the models by the algorithm's weights: w <- sum_k p_k w_k / sum_k p_k."""


@dataclass(frozen=True)
class TrimmedMean:
    """Coordinate-wise trimmed mean: each value without its b smallest and b largest, b = floor(trim x m).

    Args:
        trim: share of the m models trimmed at each end, in [0, 0.5).

    Paper: Yin et al., 2018, "Byzantine-Robust Distributed Learning", Definition 2.

    Deviations: models count equally, whatever their samples. Batch-norm statistics are trimmed like all others.
    """

    trim: float = 0.1

    def __post_init__(self) -> None:
        require(0 <= self.trim < 0.5, "server.trim", self.trim, "in [0, 0.5)", "set server.trim = 0.1")

    def cut(self, models: int) -> int:
        """Return b for m models."""
        # Rounding first: 0.29 x 100 is less than 29.
        return floor(round(self.trim * models, 9))

    def reduce(self, values: Values) -> Values:
        """Return a value for each coordinate, [n], from those of all models, [m, n]."""
        cut = self.cut(len(values))
        kept: Values = np.sort(values, axis=0)[cut : len(values) - cut]
        return np.asarray(kept.mean(axis=0))


@dataclass(frozen=True)
class Median:
    """Coordinate-wise median; of an even number of models, the mean of the two middle values.

    Paper: Yin et al., 2018, "Byzantine-Robust Distributed Learning", Definition 1.

    Deviations: as for `TrimmedMean`.
    """

    def reduce(self, values: Values) -> Values:
        """Return a value for each coordinate, [n], from those of all models, [m, n]."""
        return np.asarray(np.median(values, axis=0))


@dataclass(frozen=True)
class Krum:
    """The model with the smallest sum of squared distances to its m - f - 2 nearest others.

    Args:
        byzantine: number f of models in the cohort that may be anything, >= 0; the paper assumes m >= 2 f + 3.

    Paper: Blanchard et al., 2017, "Machine Learning with Adversaries", section 4.

    Deviations: of equal sums, the smallest client number wins. If m <= f + 2, one neighbour counts. Distances are over
    all floating entries, batch-norm statistics included.
    """

    byzantine: int

    def __post_init__(self) -> None:
        require(self.byzantine >= 0, "server.byzantine", self.byzantine, ">= 0", "set server.byzantine = 1")

    def shares(self, distances: Values) -> Values:
        """Return the share of each model, [m], from their squared distances, [m, m]."""
        return _chosen(self.order(distances)[:1], len(distances))

    def order(self, distances: Values) -> NDArray[np.int64]:
        """Return the models from the smallest sum to the largest, [m]."""
        nearest = np.sort(distances + np.diag(np.full(len(distances), np.inf)), axis=1)
        neighbours = max(1, len(distances) - self.byzantine - 2)
        return np.argsort(nearest[:, :neighbours].sum(axis=1), kind="stable")


@dataclass(frozen=True)
class MultiKrum(Krum):
    """Mean of the m - f models with the smallest sums of `Krum`.

    Args:
        byzantine: number f of models in the cohort that may be anything, >= 0; the paper assumes m >= 2 f + 3.

    Paper: Blanchard et al., 2017, "Machine Learning with Adversaries", section 5.

    Deviations: as for `Krum`; at least one model counts.
    """

    def shares(self, distances: Values) -> Values:
        return _chosen(self.order(distances)[: max(1, len(distances) - self.byzantine)], len(distances))


@dataclass(frozen=True)
class GeometricMedian:
    """Point with the smallest sum of distances to all models, by smoothed Weiszfeld steps from their mean.

        b_k <- 1 / max(nu, |v - w_k|),   v <- sum_k b_k w_k / sum_k b_k

    The steps end when the sum of distances is at most 1 + 1e-6 times the smallest one. The sum is convex with the
    gradient g = sum_k b_k (v - w_k), and the median is a mean of the models, so the sum exceeds the smallest one by at
    most |g| max_k |v - w_k|.

    Args:
        steps: most steps, >= 1. Some ten suffice, up to a hundred if half of the models are alike.
        smoothing: nu, > 0.

    Paper: Pillutla et al., 2022, "Robust Aggregation for Federated Learning", Algorithm 2; it takes 3 steps.

    Deviations: models count equally. v is a mean of the models at each step, so one pass over their distances serves
    all steps. Distances are over all floating entries, batch-norm statistics included.
    """

    steps: int = 1000
    smoothing: float = 1e-6

    def __post_init__(self) -> None:
        require(self.steps >= 1, "server.steps", self.steps, ">= 1", "set server.steps = 1000")
        holds = 0 < self.smoothing < inf
        require(holds, "server.smoothing", self.smoothing, "a number > 0", "set server.smoothing = 1e-6")

    def shares(self, distances: Values) -> Values:
        """Return the share of each model, [m], from their squared distances, [m, m]."""
        shares: Values = np.full(len(distances), 1 / len(distances))
        for _ in range(self.steps):
            # For shares a, |sum_j a_j w_j - w_k|^2 follows from the distances of pairs alone.
            squares = distances @ shares
            away = np.sqrt(np.maximum(squares - shares @ squares / 2, 0))
            b = 1 / np.maximum(self.smoothing, away)
            before, shares = shares, b / b.sum()
            step = shares - before
            gradient = b.sum() * sqrt(max(0.0, -float(step @ distances @ step) / 2))
            if gradient * away.max() <= EXCESS * away.sum():
                break
        return shares


ByCoordinate: TypeAlias = Median | TrimmedMean
"""Rules that look at one coordinate of all models at a time."""

ByDistance: TypeAlias = Krum | GeometricMedian
"""Rules that weight whole models by their squared distances from each other."""

Aggregate: TypeAlias = Mean | ByCoordinate | ByDistance
"""All rules."""

AGGREGATES: Mapping[str, type[Aggregate]] = MappingProxyType(
    {
        "mean": Mean,
        "median": Median,
        "trimmed-mean": TrimmedMean,
        "krum": Krum,
        "multi-krum": MultiKrum,
        "geometric-median": GeometricMedian,
    }
)
"""Rules by their names in experiment files."""


def _chosen(models: NDArray[np.int64], count: int) -> Values:
    """Return equal shares of some models, and 0 of the others."""
    shares = np.zeros(count)
    shares[models] = 1 / len(models)
    return shares
