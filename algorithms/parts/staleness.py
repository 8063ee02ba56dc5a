"""Weightings by staleness, and the server rule that uses them, for models that arrive one by one."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite

from algorithms.core.errors import require
from algorithms.core.layout import Layout, Memory, Packed
from algorithms.core.report import Report
from algorithms.parts.server import Mix


@dataclass(frozen=True)
class Polynomial:
    """Weight that falls with the staleness s: (s + 1)^-a. It is 1 in synchronous rounds, which have s = 0.

    Args:
        a: >= 0.
    """

    a: float = 0.5

    def __post_init__(self) -> None:
        _check("a", self.a)

    def __call__(self, report: Report) -> float:
        return float((report.get("staleness", 0.0) + 1) ** -self.a)


@dataclass(frozen=True)
class Hinge:
    """Weight that falls once the staleness s exceeds b: 1 if s <= b, else 1 / (a (s - b) + 1).

    Args:
        a: >= 0.
        b: >= 0.
    """

    a: float = 10.0
    b: float = 4.0

    def __post_init__(self) -> None:
        _check("a", self.a)
        _check("b", self.b)

    def __call__(self, report: Report) -> float:
        return 1 / (self.a * max(0.0, report.get("staleness", 0.0) - self.b) + 1)


def _check(name: str, value: float) -> None:
    holds = isfinite(value) and value >= 0
    require(holds, f"algorithm.{name}", value, "a finite number >= 0", f"leave algorithm.{name} out")


@dataclass(frozen=True)
class WeightedMix(Mix):
    """Step towards the mean by alpha times the total weight.

        w <- (1 - alpha_t) w + alpha_t mean,   alpha_t = alpha sum_k p_k

    It is FedAsync's rule for models that arrive one by one. Their weights must be at most 1.

    Args:
        alpha: in (0, 1].

    Raises:
        InputError: alpha_t is above 1 (when the rule is applied).
    """

    def __call__(
        self, model: Packed, mean: Packed, total: float, memory: Memory, layout: Layout
    ) -> tuple[Packed, Memory]:
        length = self.alpha * total
        allowed, remedy = "at most 1", "use a weighting of at most 1, or the rule mix"
        require(length <= 1, "server.alpha x weight", length, allowed, remedy)
        return Mix(length)(model, mean, total, memory, layout)
