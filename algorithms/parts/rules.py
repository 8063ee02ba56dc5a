"""Rules that end a phase of an algorithm."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import floor, isfinite
from typing import Literal, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from algorithms.core.errors import InputError, require, require_one
from algorithms.core.layout import Memory
from algorithms.core.report import Report
from algorithms.parts.weighting import ClientLoss, LossKind

Windows: TypeAlias = Mapping[str, NDArray[np.float64]]
"""`clients` [k], ascending, and `values` [k, width], the newest last; NaN for values that a client lacks."""


def entered(windows: Windows, values: Mapping[int, float], width: int) -> dict[str, NDArray[np.float64]]:
    """Return the windows with one more value for some clients.

    Args:
        windows: windows so far; empty at first.
        values: new value of each client.
        width: number of values that a window holds.
    """
    known = windows.get("clients", np.empty(0))
    clients = np.union1d(known, np.fromiter(values, np.float64, len(values)))
    table = np.full((len(clients), width), np.nan)
    if len(known):
        table[np.searchsorted(clients, known)] = windows["values"]
    for client, value in values.items():
        row = table[np.searchsorted(clients, client)]
        row[:-1], row[-1] = row[1:].copy(), value
    return {"clients": clients, "values": table}


def variances(windows: Windows, least: int) -> NDArray[np.float64]:
    """Return the variance of each client's values, [k]; NaN for clients with fewer than `least` values."""
    values = windows.get("values", np.empty((0, 0)))
    counts = (~np.isnan(values)).sum(1)
    found = np.full(len(values), np.nan)
    enough = counts >= max(1, least)
    if enough.any():
        found[enough] = np.nanvar(values[enough], axis=1)
    return found


class Rule(Protocol):
    """Rule that ends a phase. After each round it may fire; the next phase then begins at the next aggregation.

    A rule that reads more than the entries of every report names them in its property `needs`, like a weighting.
    """

    def __call__(
        self, round_number: int, rounds: int | None, reports: Mapping[int, Report], memory: Memory
    ) -> tuple[bool, Memory]:
        """Return whether the rule fires, and its new memory.

        Args:
            round_number: round, starting at 1.
            rounds: number of rounds of the run; None if it is unknown.
            reports: reports of the round's client updates that trained, by client, in client-id order, without late
                ones; of arrivals in theirs, and of a client's several the last.
            memory: memory of the rule, empty at the start of the phase; not to be changed.
        """
        ...


def ends_phase(value: object) -> bool:
    """Return whether a phase may end after this round, or after this share of the rounds."""
    return (isinstance(value, int) and value >= 1) or (isinstance(value, float) and 0 < value < 1)


@dataclass(frozen=True)
class AfterRound:
    """Rule that fires after a round.

    Args:
        round: last round of the phase, >= 1, or a share of the run's rounds, in (0, 1).
    """

    round: int | float

    def __post_init__(self) -> None:
        what, allowed = "the round after which a phase ends", "a whole number >= 1, or a share of the rounds in (0, 1)"
        require(ends_phase(self.round), what, self.round, allowed, "give 0.5 for half of them")

    def __call__(
        self, round_number: int, rounds: int | None, reports: Mapping[int, Report], memory: Memory
    ) -> tuple[bool, Memory]:
        if isinstance(self.round, int):
            return round_number >= self.round, memory
        if rounds is None:
            raise InputError(
                f"a phase ends after a share of the rounds, {self.round}, and the number of rounds is unknown: must be "
                "known; give `begin` the rounds, or the phase a whole number"
            )
        return round_number >= max(1, floor(round(self.round * rounds, 9))), memory


@dataclass(frozen=True)
class LossAgreement:
    """Rule that fires once the clients' losses agree in several rounds in a row: std_k F_k <= epsilon.

    A round with one loss shows no agreement.

    Args:
        epsilon: largest standard deviation of agreeing losses, > 0.
        patience: rounds in a row, >= 1.
        deviation: divisor of the variance: the number of clients ("population") or one less ("sample").
        loss: F_k; see `ClientLoss`.
    """

    epsilon: float = 0.1
    patience: int = 5
    deviation: Literal["population", "sample"] = "population"
    loss: LossKind = "training"

    @property
    def needs(self) -> tuple[str, ...]:
        """Entries read in a report beside those that every report has."""
        return ClientLoss(self.loss).needs

    def __post_init__(self) -> None:
        above = isfinite(self.epsilon) and self.epsilon > 0
        require(above, "algorithm.epsilon", self.epsilon, "a number > 0", "set algorithm.epsilon = 0.1")
        whole = isinstance(self.patience, int) and self.patience >= 1
        require(whole, "algorithm.patience", self.patience, "a whole number >= 1", "set algorithm.patience = 5")
        require_one("algorithm.deviation", self.deviation, ("population", "sample"), "use one")

    def __call__(
        self, round_number: int, rounds: int | None, reports: Mapping[int, Report], memory: Memory
    ) -> tuple[bool, Memory]:
        losses = np.array([report[ClientLoss(self.loss).key] for report in reports.values()])
        freedom = int(self.deviation == "sample")
        agree = losses.size > 1 and float(losses.std(ddof=freedom)) <= self.epsilon
        streak = float(memory.get("streak", np.zeros(1))[0]) + 1 if agree else 0.0
        return streak >= self.patience, {"streak": np.array([streak])}


@dataclass(frozen=True)
class SteadyStatistics:
    """Rule that fires once the clients' batch-norm statistics change evenly: Var_(W client updates) dBN_m <= tau.

        dBN_m,t = mean |S_m,t - S_t|, the change of the received statistics S by client m's update

    Args:
        width: W, >= 2: client updates of a client in its window.
        tau: > 0.
        decide: variance compared with tau: the clients' "mean", "all" clients' or "any" client's.
        absent: "ignore" leaves out clients with fewer than W updates; "wait" waits until they have W.

    Paper: FixBN, appendix B.6, which recommends a large W and a small tau.

    Deviations: the paper's variance is per client. It does not define the change of a client's statistics, the
    variance that decides, or the part of absent clients. A client without any update is not waited for.
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
        require_one("algorithm.decide", self.decide, ("mean", "all", "any"), "use one")
        require_one("algorithm.absent", self.absent, ("ignore", "wait"), "use one")

    def __call__(
        self, round_number: int, rounds: int | None, reports: Mapping[int, Report], memory: Memory
    ) -> tuple[bool, Memory]:
        shifts = {client: report["bn_shift"] for client, report in reports.items()}
        memory = entered(memory, shifts, self.width)
        found = variances(memory, self.width)
        full = found[~np.isnan(found)]
        if not full.size or (self.absent == "wait" and full.size < found.size):
            return False, memory
        below = {"mean": full.mean() <= self.tau, "all": full.max() <= self.tau, "any": full.min() <= self.tau}
        return bool(below[self.decide]), memory
