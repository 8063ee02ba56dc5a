"""The part `server`: turn the weighted mean of the client models into the next global model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from inspect import signature
from math import isfinite
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from algorithms.engine.errors import require
from algorithms.engine.finite import require_finite
from algorithms.engine.layout import Layout, Packed

if TYPE_CHECKING:
    from algorithms.engine.rows import UpdateRows

Memory = Mapping[str, NDArray[np.float64]]
"""Arrays that a part remembers from round to round, by name; empty at first."""


class Server(Protocol):
    """Server rule for the shared floating entries. A shared counter always becomes the largest of the cohort's.

    A rule with a further parameter `updates` also gets the `UpdateRows` of the round: each client's report.
    """

    def __call__(
        self, model: Packed, mean: Packed, total: float, memory: Memory, layout: Layout
    ) -> tuple[Packed, Memory]:
        """Return the next global model, and the rule's new memory.

        Args:
            model: present global model.
            mean: weighted mean of the client models.
            total: sum of their unnormalised weights, > 0.
            memory: memory of the rule; not to be changed.
            layout: entries of the model.
        """
        ...


def next_model(
    rule: Server,
    model: Packed,
    mean: Packed,
    total: float,
    memory: Memory,
    layout: Layout,
    round_number: int,
    updates: UpdateRows,
) -> tuple[Packed, Memory]:
    """Apply a server rule; see `Server`.

    Raises:
        DivergedError: the next model or the rule's memory is not finite.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        reports = {"updates": updates} if _takes_updates(type(rule)) else {}
        model, memory = rule(model, mean, total, memory, layout, **reports)
    require_finite(model, layout, round_number, memory)
    return model, memory


@cache
def _takes_updates(rule: type[Server]) -> bool:
    return "updates" in signature(rule.__call__).parameters


@dataclass(frozen=True)
class Assign:
    """The mean itself: w <- mean."""

    def __call__(
        self, model: Packed, mean: Packed, total: float, memory: Memory, layout: Layout
    ) -> tuple[Packed, Memory]:
        return mean, memory


@dataclass(frozen=True)
class Mix:
    """Step towards the mean: w <- (1 - alpha) w + alpha mean.

    Args:
        alpha: in (0, 1].
    """

    alpha: float

    def __post_init__(self) -> None:
        holds = isfinite(self.alpha) and 0 < self.alpha <= 1
        require(holds, "server.alpha", self.alpha, "in (0, 1]", "set server.alpha = 1.0")

    def __call__(
        self, model: Packed, mean: Packed, total: float, memory: Memory, layout: Layout
    ) -> tuple[Packed, Memory]:
        mixed = (1 - self.alpha) * model.floats.astype(np.float64) + self.alpha * mean.floats
        return Packed(mixed.astype(mean.floats.dtype), mean.integers), memory
