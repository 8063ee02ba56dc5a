"""Weighted sums of models, in client-id order, block by block."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from algorithms.core.layout import Layout, Packed


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
    _scratch: NDArray[np.float64] | None = field(default=None, repr=False)

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
            if self._scratch is None:
                self._scratch = np.empty_like(self.floats)
            np.multiply(packed.floats, weight, out=self._scratch, dtype=np.float64)
            self.floats += self._scratch
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

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_scratch": None}
