"""Weighted sums of models, in client-id order, block by block."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from algorithms.core.layout import Layout, Packed

PIECE = 2**15
"""Values of a model whose products are in memory at once."""


@dataclass
class Sum:
    """A weighted sum of packed entries: sum_k p_k w_k, the total weight sum_k p_k, and the largest counters.

    The sum is in float64, in which the product of a float32 and a whole number is exact. The mean of one float32 model
    is therefore that model to the last bit, and only the order of blocks matters.
    """

    floats: NDArray[np.float64]
    integers: NDArray[np.int64]
    floating: str
    total: float = 0.0

    @classmethod
    def zero(cls, layout: Layout) -> Sum:
        """Return the empty sum of a layout's entries."""
        return cls(np.zeros(layout.floats), np.zeros(layout.integers, np.int64), layout.floating)

    def add(self, packed: Packed, weight: float) -> None:
        """Add one model; weight 0 leaves no trace."""
        if weight == 0:
            return
        if self.total == 0:
            # Assign instead of adding to zeros: 0.0 + -0.0 would lose the sign of a single model's zero.
            np.multiply(packed.floats, weight, out=self.floats, dtype=np.float64)
        else:
            # Piece by piece, because the products of a large model would need as much memory again, and would leave
            # the cache before they are added.
            products = np.empty(min(PIECE, len(self.floats)))
            for first in range(0, len(self.floats), PIECE):
                sums, floats = (each[first : first + PIECE] for each in (self.floats, packed.floats))
                sums += np.multiply(floats, weight, out=products[: len(sums)], dtype=np.float64)
        np.maximum(self.integers, packed.integers, out=self.integers)
        self.total += weight

    def include(self, floats: NDArray[np.float64], integers: NDArray[np.int64], weight: float) -> None:
        """Add models that are summed already, sum_k p_k w_k with the total weight sum_k p_k; keep the array."""
        if self.total == 0:
            self.floats = floats
        else:
            self.floats += floats
        np.maximum(self.integers, integers, out=self.integers)
        self.total += weight

    def plus(self, part: Sum) -> Sum:
        """Return the sum of both, in this one's memory if that is writable."""
        if part.total == 0 or self.total == 0:
            return self if part.total == 0 else part
        if self.floats.flags.writeable:
            self.floats += part.floats
        else:
            self.floats = self.floats + part.floats
        self.integers = np.maximum(self.integers, part.integers)
        self.total += part.total
        return self

    def copy(self) -> Sum:
        """Return the sum in memory of its own."""
        return Sum(self.floats.copy(), self.integers.copy(), self.floating, self.total)

    def mean(self) -> Packed | None:
        """Return the weighted mean; None if the total weight is 0."""
        if self.total == 0:
            return None
        return Packed((self.floats / self.total).astype(self.floating), self.integers.copy())
