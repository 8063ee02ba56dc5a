"""q-FedAvg: Li et al., "Fair Resource Allocation in Federated Learning", 2020."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf

import numpy as np

from algorithms.core.errors import require
from algorithms.core.report import Report, UpdateRows
from algorithms.fedavg import fedavg
from algorithms.parts.algorithm import Algorithm
from algorithms.parts.schedule import Participation
from algorithms.parts.server import Assign, Server, Stretched
from algorithms.training.local import Local

LEAST = 1e-10
"""Smallest loss, added to each, because a power of 0 may be infinite."""


def q_fedavg(participation: Participation, local: Local, server: Server = Assign(), *, q: float = 1.0) -> Algorithm:
    """Weight clients by a power of their loss, so that all clients come to similar losses.

        D_k = L F_k^q (w_k - w),   h_k = q F_k^(q-1) |L (w_k - w)|^2 + L F_k^q,   w <- w + sum_k D_k / sum_k h_k

    F_k is the loss of w over the samples of client k, and L = 1 / lr.

    Args:
        participation: rule that draws a round's cohort.
        local: content of a client update.
        server: step from w + sum_k D_k / sum_k h_k to the next global model.
        q: weight of fairness, >= 0; with 0 it is FedAvg with equal weights.

    Raises:
        InputError: q is out of range, or the learning rate changes.

    Paper: Algorithm 2; q is 0 to 15.

    Deviations: the paper draws clients in proportion to their samples; set `sampling = "size"` for that. F_k is
    increased by 1e-10, as in the authors' code. Batch norm normalises by its running statistics for F_k. Only
    parameters take the step; all other entries take the mean by F_k^q.
    """
    require(0 <= q < inf, "algorithm.q", q, "a number >= 0", "set algorithm.q = 1.0")
    for name in ("lr_decay", "lr_schedule"):
        value, usual = getattr(local, name), getattr(Local, name)
        allowed = f"{usual!r} for q-fedavg, whose L = 1 / lr is fixed"
        require(value == usual, f"local.{name}", value, allowed, "leave it out")
    fair = LossPower(q, local.lr)
    return replace(fedavg(participation, local), weighting=fair, server=Stretched(fair, server))


@dataclass(frozen=True)
class LossPower:
    """Weight by a power of the received model's loss: F_k^q.

    Args:
        q: power, >= 0.
        lr: learning rate of the local steps.
    """

    q: float
    lr: float

    @property
    def needs(self) -> tuple[str, ...]:
        """Entries read in a report beside those that every report has."""
        return "loss_received", "change"

    def __call__(self, report: Report) -> float:
        with np.errstate(over="ignore"):  # a weight of infinity is one of `Local.nonfinite`
            return float(np.float64(report["loss_received"] + LEAST) ** self.q)

    def stretch(self, updates: UpdateRows) -> float:
        """Return L sum_k F_k^q / sum_k h_k, the factor on the step to the mean by F_k^q."""
        counted = updates.weights > 0
        weights, change = updates.weights[counted], updates.column("change")[counted]
        losses = updates.column("loss_received")[counted] + LEAST
        h = self.q * weights / losses * change / self.lr + weights
        return float(weights.sum() / h.sum())
