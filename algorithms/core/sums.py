"""Weighted sums of models, in client-id order, block by block."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from algorithms.core.layout import Layout, Packed

PIECE = 2**15
"""Values of a model in a piece. A whole array beside a large sum would take its memory again, and leave the cache."""


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
            self.integers[:] = packed.integers
        else:
            products = np.empty(min(PIECE, len(self.floats)))
            # NumPy refuses the rest of a model that is longer than the sum.
            for piece in _pieces(max(len(self.floats), len(packed.floats))):
                sums = self.floats[piece]
                sums += np.multiply(packed.floats[piece], weight, out=products[: len(sums)], dtype=np.float64)
            np.maximum(self.integers, packed.integers, out=self.integers)
        self.total += weight

    def include(self, floats: NDArray[np.float64], integers: NDArray[np.int64], weight: float) -> None:
        """Add models that are summed already, sum_k p_k w_k with the total weight sum_k p_k; keep the array."""
        if self.total == 0:
            self.floats = floats
            self.integers[:] = integers
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
        floats = np.empty(len(self.floats), self.floating)
        for piece in _pieces(len(floats)):
            floats[piece] = self.floats[piece] / self.total
        return Packed(floats, self.integers.copy())


def _pieces(length: int) -> Iterator[slice]:
    return (slice(first, first + PIECE) for first in range(0, length, PIECE))
