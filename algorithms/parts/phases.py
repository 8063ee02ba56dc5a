"""Phases: an algorithm that becomes another one at a merge, after so many rounds or when a rule fires."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import floor, isfinite
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from algorithms.engine.errors import InputError, require
from algorithms.engine.windows import entered, variances
from algorithms.parts.algorithm import Algorithm, Switch
from algorithms.parts.weighting import Loss, LossOf, Report

Memory = Mapping[str, NDArray[np.float64]]
"""What a rule remembers from round to round of its phase, by name; empty at first."""


class Rule(Protocol):
    """Says after each round whether the next phase begins; it does at the next merge.

    One that reads more of a report than all have names it in `needs`, as `Weighting` does.
    """

    def __call__(
        self, number: int, rounds: int | None, reports: Mapping[int, Report], memory: Memory
    ) -> tuple[bool, Memory]:
        """Whether the rule fires, and what it remembers.

        Args:
            number: the round, the first being 1.
            rounds: how many the run has; None where nobody said.
            reports: of its visits that trained, by client, in client-id order.
            memory: what it remembers; not to be changed.
        """
        ...


@dataclass(frozen=True)
class After:
    """Fires after a round.

    Args:
        round: the last one of the phase, >= 1, or a share of the run's rounds, in (0, 1).
    """

    round: int | float

    def __post_init__(self) -> None:
        is_whole = isinstance(self.round, int) and self.round >= 1
        holds = is_whole or (isinstance(self.round, float) and 0 < self.round < 1)
        allowed = "a whole number >= 1, or a share of the rounds in (0, 1)"
        require(holds, "the round after which a phase ends", self.round, allowed, "give 0.5 for half of them")

    def __call__(
        self, number: int, rounds: int | None, reports: Mapping[int, Report], memory: Memory
    ) -> tuple[bool, Memory]:
        if isinstance(self.round, int):
            return number >= self.round, memory
        if rounds is None:
            raise InputError(
                f"the phase ends after a share of the rounds, {self.round}, and how many there are is not known: "
                "must be known; give `begin` the rounds, or the phase a number"
            )
        return number >= max(1, floor(round(self.round * rounds, 9))), memory


@dataclass(frozen=True)
class Calm:
    """Fires once the clients' losses have been alike for some rounds: std_k F_k <= epsilon, so often in a row.

    Args:
        epsilon: > 0.
        patience: rounds in a row, >= 1.
        deviation: divided by the number of clients ("population") or by one less ("sample").
        loss: which one of a visit; see `Loss`.
    """

    epsilon: float = 0.1
    patience: int = 5
    deviation: Literal["population", "sample"] = "population"
    loss: LossOf = "training"

    @property
    def needs(self) -> tuple[str, ...]:
        """What it reads in a report beside what all have."""
        return Loss(self.loss).needs

    def __post_init__(self) -> None:
        above = isfinite(self.epsilon) and self.epsilon > 0
        require(above, "algorithm.epsilon", self.epsilon, "a number > 0", "set algorithm.epsilon = 0.1")
        whole = isinstance(self.patience, int) and self.patience >= 1
        require(whole, "algorithm.patience", self.patience, "a whole number >= 1", "set algorithm.patience = 5")
        known = self.deviation in ("population", "sample")
        require(known, "algorithm.deviation", self.deviation, '"population" or "sample"', "use one")

    def __call__(
        self, number: int, rounds: int | None, reports: Mapping[int, Report], memory: Memory
    ) -> tuple[bool, Memory]:
        losses = np.array([report[Loss(self.loss).key] for report in reports.values()])
        freedom = int(self.deviation == "sample")
        # Fewer losses than a deviation needs are no reason to believe that clients agree.
        calm = losses.size > freedom and float(losses.std(ddof=freedom)) <= self.epsilon
        row = float(memory.get("row", np.zeros(1))[0]) + 1 if calm else 0.0
        return row >= self.patience, {"row": np.array([row])}


@dataclass(frozen=True)
class Window:
    """Fires once the clients' batch-norm statistics change evenly: Var_(W visits) dBN_m <= tau.

        dBN_m,t = mean |S_m,t - S_t|, how far client m's visit moved the statistics S from those it received

    Args:
        width: W, >= 2: visits of a client in its window.
        tau: > 0.
        decide: whose variance has to be below tau: the clients' "mean", "all" clients' or "any" one's.
        absent: clients with fewer visits than W are left out ("ignore"), or have to have them first ("wait").

    Paper: FixBN, appendix B.6, which recommends a large W and a small tau.

    Deviations: the paper's variance is per client, and it does not say what the change of a client's statistics is,
    who decides, or what clients count that are absent. A client that was never visited is not waited for.
    """

    width: int
    tau: float
    decide: Literal["mean", "all", "any"] = "mean"
    absent: Literal["ignore", "wait"] = "ignore"

    needs = ("bn_shift",)

    def __post_init__(self) -> None:
        whole = isinstance(self.width, int) and self.width >= 2
        require(whole, "algorithm.width", self.width, "a whole number >= 2", "set algorithm.width = 20")
        above = isfinite(self.tau) and self.tau > 0
        require(above, "algorithm.tau", self.tau, "a number > 0", "set algorithm.tau = 0.0001")
        known = self.decide in ("mean", "all", "any")
        require(known, "algorithm.decide", self.decide, '"mean", "all" or "any"', "use one")
        known = self.absent in ("ignore", "wait")
        require(known, "algorithm.absent", self.absent, '"ignore" or "wait"', "use one")

    def __call__(
        self, number: int, rounds: int | None, reports: Mapping[int, Report], memory: Memory
    ) -> tuple[bool, Memory]:
        shifts = {client: report["bn_shift"] for client, report in reports.items()}
        memory = entered(memory, shifts, self.width)
        found = variances(memory, self.width)
        full = found[~np.isnan(found)]
        if not full.size or (self.absent == "wait" and full.size < found.size):
            return False, memory
        below = {"mean": full.mean() <= self.tau, "all": full.max() <= self.tau, "any": full.min() <= self.tau}
        return bool(below[self.decide]), memory


def phases(first: Algorithm, *following: tuple[int | float | Rule, Algorithm]) -> Algorithm:
    """Compose an algorithm of phases: each begins at the first merge at which its rule has fired.

    Args:
        first: the first phase.
        following: for each later phase the round after which it begins (see `After`), or a rule, and its parts.

    Raises:
        InputError: two phases place the model's entries differently, or compute them differently.
    """
    if not following:
        return first
    (when, then), *rest = following
    for name, one, other in (
        ("sharing", first.sharing, then.sharing),
        ("local.compute", first.local.compute, then.local.compute),
    ):
        if one != other:
            raise InputError(
                f"{name} = {other} in a later phase: must be {one} as in the first, for models and kept entries go on; "
                "give both phases the same"
            )
    rule = After(when) if isinstance(when, int | float) else when
    return replace(first, switch=Switch(rule, phases(then, *rest)))
