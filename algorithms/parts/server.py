"""The part `server`: how the weighted mean of the models becomes the next global model."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from algorithms.engine.errors import require
from algorithms.engine.finite import require_finite
from algorithms.engine.layout import Layout, Packed

Memory = Mapping[str, NDArray[np.float64]]
"""What a rule remembers from merge to merge, by name; empty before the first."""


class Server(Protocol):
    """A rule for the shared floating entries; a counter is always the largest one."""

    def __call__(
        self, model: Packed, mean: Packed, total: float, memory: Memory, layout: Layout
    ) -> tuple[Packed, Memory]:
        """The next global model, and what the rule remembers.

        Args:
            model: the present one.
            mean: the weighted mean of the merged models.
            total: the sum of their unnormalised weights, > 0.
            memory: what it remembers; not to be changed.
            layout: what the entries are.
        """
        ...


def next_model(
    rule: Server, model: Packed, mean: Packed, total: float, memory: Memory, layout: Layout, number: int
) -> tuple[Packed, Memory]:
    """The next global model and the rule's memory, of a round; see `Server`.

    Raises:
        DivergedError: one of them is not finite.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        model, memory = rule(model, mean, total, memory, layout)
    require_finite(model, layout, number, memory)
    return model, memory


@dataclass(frozen=True)
class Assign:
    """The mean itself: w <- mean."""

    def __call__(
        self, model: Packed, mean: Packed, total: float, memory: Memory, layout: Layout
    ) -> tuple[Packed, Memory]:
        return mean, memory


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

    def __call__(
        self, model: Packed, mean: Packed, total: float, memory: Memory, layout: Layout
    ) -> tuple[Packed, Memory]:
        mixed = (1 - self.alpha) * model.floats.astype(np.float64) + self.alpha * mean.floats
        return Packed(mixed.astype(mean.floats.dtype), mean.integers), memory


@dataclass(frozen=True)
class WeightedMix(Mix):
    """A step towards the mean that is the longer, the more it weighs: `Mix` by alpha times the total weight.

        w <- (1 - alpha_t) w + alpha_t mean,   alpha_t = alpha sum_k p_k

    Where models merge one by one, it is FedAsync's rule; their weights have to be at most 1.

    Args:
        alpha: in (0, 1].

    Raises:
        InputError: alpha_t is above 1 (when it is applied).
    """

    def __call__(
        self, model: Packed, mean: Packed, total: float, memory: Memory, layout: Layout
    ) -> tuple[Packed, Memory]:
        length = self.alpha * total
        require(length <= 1, "server.alpha x weight", length, "at most 1", "weigh a visit by at most 1, or use mix")
        return Mix(length)(model, mean, total, memory, layout)


@dataclass(frozen=True)
class Adaptive(ABC):
    """An adaptive step along the pseudo-gradient, on parameters; all other entries take the mean.

        delta = mean - w,   m <- beta1 m + (1 - beta1) delta,   v <- as the rule says,   w <- w + lr m / (sqrt(v) + tau)

    Running statistics take the mean because such a step could make a variance negative. There is no correction of the
    first steps' bias.

    Args:
        lr: eta, > 0.
        beta1: decay of the first moment, in [0, 1).
        tau: what keeps the step bounded, > 0.
        initial: v before the first merge, >= 0; by default tau squared.

    Raises:
        InputError: out of range.

    Paper: Reddi et al., "Adaptive Federated Optimization", 2021, Algorithm 2; "FedAdapt" in RADFed, whose Algorithm 2
    prints v without the square root.
    """

    lr: float = 0.1
    beta1: float = 0.9
    tau: float = 1e-3
    initial: float | None = None

    def __post_init__(self) -> None:
        require(isfinite(self.lr) and self.lr > 0, "server.lr", self.lr, "a number > 0", "set server.lr = 0.1")
        require(0 <= self.beta1 < 1, "server.beta1", self.beta1, "in [0, 1)", "set server.beta1 = 0.9")
        require(isfinite(self.tau) and self.tau > 0, "server.tau", self.tau, "a number > 0", "set server.tau = 0.001")
        initial = 0.0 if self.initial is None else self.initial
        holds = isfinite(initial) and initial >= 0
        require(holds, "server.initial", self.initial, "a number >= 0", "leave it out: it is tau squared then")

    @abstractmethod
    def second(self, v: NDArray[np.float64], square: NDArray[np.float64]) -> NDArray[np.float64]:
        """The next second moment, from the present one and delta squared."""

    def __call__(
        self, model: Packed, mean: Packed, total: float, memory: Memory, layout: Layout
    ) -> tuple[Packed, Memory]:
        w = model.floats.astype(np.float64)
        delta = mean.floats - w
        initial = self.tau**2 if self.initial is None else self.initial
        m = self.beta1 * memory.get("m", np.zeros_like(w)) + (1 - self.beta1) * delta
        v = self.second(memory.get("v", np.full_like(w, initial)), delta**2)
        floats = mean.floats.copy()
        for entry, place in layout.places():
            if entry.is_parameter:
                floats[place] = w[place] + self.lr * m[place] / (np.sqrt(v[place]) + self.tau)
        return Packed(floats, mean.integers), {"m": m, "v": v}


@dataclass(frozen=True)
class Forgetting(Adaptive):
    """An adaptive rule whose second moment forgets.

    Args:
        beta2: decay of the second moment, in [0, 1).
    """

    beta2: float = 0.99

    def __post_init__(self) -> None:
        super().__post_init__()
        require(0 <= self.beta2 < 1, "server.beta2", self.beta2, "in [0, 1)", "set server.beta2 = 0.99")


@dataclass(frozen=True)
class Adam(Forgetting):
    """`Adaptive` with v <- beta2 v + (1 - beta2) delta^2."""

    def second(self, v: NDArray[np.float64], square: NDArray[np.float64]) -> NDArray[np.float64]:
        return self.beta2 * v + (1 - self.beta2) * square


@dataclass(frozen=True)
class Yogi(Forgetting):
    """`Adaptive` with v <- v - (1 - beta2) delta^2 sign(v - delta^2)."""

    def second(self, v: NDArray[np.float64], square: NDArray[np.float64]) -> NDArray[np.float64]:
        return v - (1 - self.beta2) * square * np.sign(v - square)


@dataclass(frozen=True)
class Adagrad(Adaptive):
    """`Adaptive` with v <- v + delta^2."""

    def second(self, v: NDArray[np.float64], square: NDArray[np.float64]) -> NDArray[np.float64]:
        return v + square
