"""The part `server`: how the weighted mean of the models becomes the next global model."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from typing import Protocol

import numpy as np

from algorithms.errors import require
from algorithms.layout import Packed


class Server(Protocol):
    """A rule on every shared floating entry; a counter is always the largest one."""

    def __call__(self, model: Packed, mean: Packed, total: float) -> Packed:
        """The next global model.

        Args:
            model: the present one.
            mean: the weighted mean of the merged models.
            total: the sum of their unnormalised weights, > 0.
        """
        ...


@dataclass(frozen=True)
class Assign:
    """The mean itself: w <- mean."""

    def __call__(self, model: Packed, mean: Packed, total: float) -> Packed:
        return mean


@dataclass(frozen=True)
class Mix:
    """A step towards the mean: w <- (1 - alpha) w + alpha mean.

    Args:
        alpha: in (0, 1].
    """

    alpha: float

    def __post_init__(self) -> None:
        holds = isfinite(self.alpha) and 0 < self.alpha <= 1
        require(holds, "server.alpha", self.alpha, "in (0, 1]", "set server.alpha = 1.0")

    def __call__(self, model: Packed, mean: Packed, total: float) -> Packed:
        mixed = (1 - self.alpha) * model.floats.astype(np.float64) + self.alpha * mean.floats
        return Packed(mixed.astype(mean.floats.dtype), mean.integers)
