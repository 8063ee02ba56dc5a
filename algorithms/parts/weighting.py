"""The part `weighting`: one unnormalised number a client update, its share in the aggregation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Literal, TypeAlias, get_args

from algorithms.core.errors import InputError, require, require_one
from algorithms.core.report import Report
from algorithms.core.returned import Returned, name_of

Weighting: TypeAlias = Callable[[Report], float]
"""Return the weight of a client update, >= 0.

A weighting that reads more than the entries of every report names them in a property `needs`; see
`algorithms.training.reports`.
"""


def weight_of(weighting: Weighting, report: Report, client: int) -> float:
    """Return the weight of a client update; raise InputError if it is no number >= 0."""
    weight = weighting(report)
    if not isinstance(weight, float):
        weight = Returned(f"weighting = {name_of(weighting)!r}", weighting).number("the weight", weight)
    if weight < 0 and isinstance(weighting, ClientLoss):  # a person sets the loss, not the part
        raise InputError(
            f"local.loss: must be >= 0, because client updates weigh by it, and is {weight:g} for client {client}; set "
            "another local.loss"
        )
    if weight < 0:
        raise InputError(
            f"weighting = {weighting}: must give weights >= 0, and gives client {client} {weight:g}; change the part"
        )
    return weight


@dataclass(frozen=True)
class Samples:
    """Weight by the client's number of samples: n_k."""

    def __call__(self, report: Report) -> float:
        return report["samples"]


@dataclass(frozen=True)
class Equal:
    """The weight 1 for every client update."""

    def __call__(self, report: Report) -> float:
        return 1.0


@dataclass(frozen=True)
class SamplesUsed:
    """Weight by the number of samples in all steps; a sample counts as often as it is used."""

    def __call__(self, report: Report) -> float:
        return report["used"]


WeightingName = Literal["samples", "equal"]
"""Weightings that algorithms take by name."""

_NAMED: Mapping[WeightingName, Weighting] = {"samples": Samples(), "equal": Equal()}


def weighting_of(name: WeightingName) -> Weighting:
    """Return the weighting with a name.

    Raises:
        InputError: the name is unknown.
    """
    require_one("algorithm.weighting", name, tuple(_NAMED), 'set algorithm.weighting = "samples"')
    return _NAMED[name]


def name_of_weighting(weighting: Weighting) -> str:
    """Return the name of a weighting; "" if it has none."""
    return next((name for name, each in _NAMED.items() if each == weighting), "")


LossKind = Literal["training", "after"]


@dataclass(frozen=True)
class ClientLoss:
    """Weight by the client's loss: F_k.

    Args:
        of: "training", the mean loss of the samples during training; "after", that of all samples afterwards.
    """

    of: LossKind = "training"

    def __post_init__(self) -> None:
        require_one("algorithm.loss", self.of, get_args(LossKind), 'set algorithm.loss = "training"')

    @property
    def key(self) -> str:
        """Name of the loss in a report."""
        return "loss" if self.of == "training" else "loss_after"

    @property
    def needs(self) -> tuple[str, ...]:
        """Entries read in a report beside those that every report has."""
        return () if self.of == "training" else (self.key,)

    def __call__(self, report: Report) -> float:
        return report[self.key]


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
