"""Sums of models: weighted, in client-id order, block by block."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from algorithms.engine.layout import Layout, Packed

Floats64: TypeAlias = NDArray[np.float64]


@dataclass
class Sum:
    """A weighted sum of packed entries: sum_k p_k w_k, the total weight sum_k p_k, and the largest counters.

    The sum is kept in float64, where the product of a float32 and a whole number is exact: the mean of one float32
    model is that model to the last bit, and the order of blocks is the only order that there is.
    """

    floats: NDArray[np.float64]
    integers: NDArray[np.int64]
    floating: str
    total: float = 0.0
    _scratch: NDArray[np.float64] | None = field(default=None, repr=False)

    @classmethod
    def zero(cls, layout: Layout) -> Sum:
        """The empty sum of a layout's entries."""
        return cls(np.zeros(layout.floats), np.zeros(layout.integers, np.int64), layout.floating)

    def add(self, packed: Packed, weight: float) -> None:
        """Add one model; with weight 0 it leaves no trace."""
        if weight == 0:
            return
        if self.total == 0:
            # Assigned, not added to zeros: 0.0 + -0.0 would lose the sign of a single model's zero.
            np.multiply(packed.floats, weight, out=self.floats, dtype=np.float64)
        else:
            if self._scratch is None:
                self._scratch = np.empty_like(self.floats)
            np.multiply(packed.floats, weight, out=self._scratch, dtype=np.float64)
            self.floats += self._scratch
        np.maximum(self.integers, packed.integers, out=self.integers)
        self.total += weight

    def plus(self, part: Sum) -> Sum:
        """The sum of two sums, in this one's memory where that may be written to."""
        if part.total == 0 or self.total == 0:
            return self if part.total == 0 else part
        if self.floats.flags.writeable:
            self.floats += part.floats
        else:
            self.floats = self.floats + part.floats
        self.integers = np.maximum(self.integers, part.integers)
        self.total += part.total
        return self

    def mean(self) -> Packed | None:
        """The weighted mean, or None where nothing has weight."""
        if self.total == 0:
            return None
        return Packed((self.floats / self.total).astype(self.floating), self.integers.copy())

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_scratch": None}


@dataclass
class Directions:
    """The sums of the models' directions, by their parameters: sum_k w_k / |w_k|, and of their updates' likewise.

    They tell how far the models point apart without any pair being looked at: for unit vectors u_k

        2 sum_(j < k) u_j . u_k = |sum_k u_k|^2 - sum_k |u_k|^2
    """

    models: Floats64
    updates: Floats64
    parameters: Floats64
    count: int = 0
    moved: int = 0

    @classmethod
    def zero(cls, layout: Layout) -> Directions:
        """The empty sums of a layout's entries."""
        parameters = np.zeros(layout.floats)
        for entry, place in layout.places():
            parameters[place] = entry.is_parameter
        return cls(np.zeros(layout.floats), np.zeros(layout.floats), parameters)

    def add(self, sent: Packed, received: Packed) -> None:
        """Add a model as it was sent, and as it had been received."""
        w = sent.floats * self.parameters
        change = w - received.floats * self.parameters
        self.models += w / (np.linalg.norm(w) or 1)
        # A model that did not move has no direction; it points apart from all others.
        self.moved += bool(change.any())
        self.updates += change / (np.linalg.norm(change) or 1)
        self.count += 1

    def plus(self, part: Directions) -> Directions:
        """The sums of both."""
        models, updates = self.models + part.models, self.updates + part.updates
        return Directions(models, updates, self.parameters, self.count + part.count, self.moved + part.moved)

    @property
    def divergence(self) -> dict[str, float]:
        """DL, the mean over all pairs of 1 - cos(w_j, w_k), of the models as sent and of their updates.

        Nothing where there is no pair. Paper: RADFed, equation 3.
        """
        pairs = self.count * (self.count - 1)
        if not pairs:
            return {}
        return {
            "dl": 1 - float(self.models @ self.models - self.count) / pairs,
            "dl_updates": 1 - float(self.updates @ self.updates - self.moved) / pairs,
        }
