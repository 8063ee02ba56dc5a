"""The part `weigh`: one unnormalised number a visit, its share in the merge."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Protocol

from algorithms.errors import require

Report = Mapping[str, float]


class Weigh(Protocol):
    """Turns a visit's report into its weight, >= 0."""

    def __call__(self, report: Report) -> float: ...


@dataclass(frozen=True)
class Samples:
    """By the client's number of samples: n_k."""

    def __call__(self, report: Report) -> float:
        return report["samples"]


@dataclass(frozen=True)
class Equal:
    """Every visit counts the same: 1."""

    def __call__(self, report: Report) -> float:
        return 1.0


@dataclass(frozen=True)
class Loss:
    """By how badly the client is fitted: F_k, the mean loss of its samples as they were trained on."""

    def __call__(self, report: Report) -> float:
        return report["loss"]


@dataclass(frozen=True)
class Polynomial:
    """The less, the more staleness s: (s + 1)^-a. Where nothing is stale, s = 0, it is 1.

    Args:
        a: >= 0.
    """

    a: float = 0.5

    def __post_init__(self) -> None:
        _at_least_0("a", self.a)

    def __call__(self, report: Report) -> float:
        return float((report.get("staleness", 0.0) + 1) ** -self.a)


@dataclass(frozen=True)
class Hinge:
    """The less, the more staleness s exceeds b: 1 where s <= b, else 1 / (a (s - b) + 1).

    Args:
        a: >= 0.
        b: >= 0.
    """

    a: float = 10.0
    b: float = 4.0

    def __post_init__(self) -> None:
        _at_least_0("a", self.a)
        _at_least_0("b", self.b)

    def __call__(self, report: Report) -> float:
        return 1 / (self.a * max(0.0, report.get("staleness", 0.0) - self.b) + 1)


def _at_least_0(name: str, value: float) -> None:
    holds = isfinite(value) and value >= 0
    require(holds, f"algorithm.{name}", value, "a finite number >= 0", f"leave algorithm.{name} out")
