"""The part `weighting`: one unnormalised number a visit, its share in the merge."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Literal, Protocol, get_args

from algorithms.engine.errors import require

Report = Mapping[str, float]


class Weighting(Protocol):
    """Turns a visit's report into its weight, >= 0.

    Every report has the client's `samples`, the `steps` taken and the samples `used` in them, and their mean `loss`. A
    part that reads more has a property `needs` with its names; see `algorithms.training.after`.
    """

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
class Used:
    """By the number of samples that the visit trained on, each as often as it was used."""

    def __call__(self, report: Report) -> float:
        return report["used"]


LossOf = Literal["training", "after"]


@dataclass(frozen=True)
class Loss:
    """By how badly the client is fitted: F_k.

    Args:
        of: the mean loss of its samples as they were "training", or of all of them "after" it.
    """

    of: LossOf = "training"

    def __post_init__(self) -> None:
        known = self.of in get_args(LossOf)
        require(known, "algorithm.loss", self.of, '"training" or "after"', 'set algorithm.loss = "training"')

    @property
    def key(self) -> str:
        """Its name in a report."""
        return "loss" if self.of == "training" else "loss_after"

    @property
    def needs(self) -> tuple[str, ...]:
        """What it reads beside what all reports have."""
        return () if self.of == "training" else (self.key,)

    def __call__(self, report: Report) -> float:
        return report[self.key]


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
