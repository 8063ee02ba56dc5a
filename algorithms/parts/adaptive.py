"""Adaptive server rules: Adam, Yogi and Adagrad on the pseudo-gradient."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from math import isfinite

import numpy as np
from numpy.typing import NDArray

from algorithms.core.errors import require
from algorithms.core.layout import Layout, Memory, Packed
from algorithms.parts.server import on_parameters


@dataclass(frozen=True)
class Adaptive(ABC):
    """Adaptive step of the parameters along the pseudo-gradient; all other entries take the mean.

        delta = mean - w,   m <- beta1 m + (1 - beta1) delta,   v <- as the rule says,   w <- w + lr m / (sqrt(v) + tau)

    Running statistics take the mean because such a step could make a variance negative. Parameters that no client
    trains in this phase take it too, because m would still move them. The first steps' bias is not corrected.

    Args:
        lr: eta, > 0.
        beta1: decay of the first moment, in [0, 1).
        tau: bound of the step, > 0.
        initial: v before the first aggregation, >= 0; by default tau squared.

    Raises:
        InputError: a number is out of range.

    Paper: Reddi et al., "Adaptive Federated Optimization", 2021, Algorithm 2; "FedAdapt" in RADFed. RADFed's
    Algorithm 2 prints v without the square root.
    """

    lr: float = 0.1
    beta1: float = 0.9
    tau: float = 1e-3
    initial: float | None = None

    def __post_init__(self) -> None:
        require(isfinite(self.lr) and self.lr > 0, "server.lr", self.lr, "a number > 0", "set server.lr = 0.1")
        for name, usual in (("beta1", 0.9), ("beta2", 0.99)):
            decay = getattr(self, name, usual)
            require(0 <= decay < 1, f"server.{name}", decay, "in [0, 1)", f"set server.{name} = {usual}")
        require(isfinite(self.tau) and self.tau > 0, "server.tau", self.tau, "a number > 0", "set server.tau = 0.001")
        initial = 0.0 if self.initial is None else self.initial
        holds = isfinite(initial) and initial >= 0
        require(holds, "server.initial", self.initial, "a number >= 0", "leave it out for tau squared")

    @abstractmethod
    def second(self, v: NDArray[np.float64], square: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the next second moment, from the present one and delta squared."""

    def __call__(
        self, model: Packed, mean: Packed, total: float, memory: Memory, layout: Layout
    ) -> tuple[Packed, Memory]:
        w = model.floats.astype(np.float64)
        delta = mean.floats - w
        initial = self.tau**2 if self.initial is None else self.initial
        m = self.beta1 * memory.get("m", np.zeros_like(w)) + (1 - self.beta1) * delta
        v = self.second(memory.get("v", np.full_like(w, initial)), delta**2)
        return on_parameters(w + self.lr * m / (np.sqrt(v) + self.tau), mean, layout), {"m": m, "v": v}


@dataclass(frozen=True)
class Adam(Adaptive):
    """`Adaptive` with v <- beta2 v + (1 - beta2) delta^2.

    Args:
        beta2: decay of the second moment, in [0, 1).
    """

    beta2: float = 0.99

    def second(self, v: NDArray[np.float64], square: NDArray[np.float64]) -> NDArray[np.float64]:
        return self.beta2 * v + (1 - self.beta2) * square


@dataclass(frozen=True)
class Yogi(Adaptive):
    """`Adaptive` with v <- v - (1 - beta2) delta^2 sign(v - delta^2).

    Args:
        beta2: decay of the second moment, in [0, 1).
    """

    beta2: float = 0.99

    def second(self, v: NDArray[np.float64], square: NDArray[np.float64]) -> NDArray[np.float64]:
        return v - (1 - self.beta2) * square * np.sign(v - square)


@dataclass(frozen=True)
class Adagrad(Adaptive):
    """`Adaptive` with v <- v + delta^2."""

    def second(self, v: NDArray[np.float64], square: NDArray[np.float64]) -> NDArray[np.float64]:
        return v + square
