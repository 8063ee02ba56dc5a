"""The part `weigh`: one unnormalised number a visit, its share in the merge."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

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
