"""FedDyn: Acar et al., "Federated Learning Based on Dynamic Regularization", 2021."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self

import numpy as np

from algorithms.core.clients import Census
from algorithms.core.layout import Layout, Memory, Packed
from algorithms.fedavg import fedavg
from algorithms.parts.algorithm import Algorithm
from algorithms.parts.arguments import require_float32, require_no_rule
from algorithms.parts.schedule import Participation
from algorithms.parts.server import Assign, Server, on_parameters
from algorithms.training.local import Local, require_defaults
from algorithms.training.method import Method
from algorithms.training.terms import RECEIVED, AffineTerm, pull

if TYPE_CHECKING:
    from algorithms.training.steps import LocalSteps


def feddyn(participation: Participation, local: Local, server: Server = Assign(), *, alpha: float = 0.01) -> Algorithm:
    """Run FedAvg with a regulariser of each client that changes every round, so that all clients' optima agree.

        min_w F_k(w) - <h_k, w> + alpha / 2 ||w - w_t||^2,  started from w_t,   h_k <- h_k - alpha (w_k - w_t)
        h <- h - alpha / K sum_k (w_k - w_t),   w <- mean_k w_k - h / alpha

    Args:
        participation: rule that draws a round's cohort.
        local: content of a client update.
        server: `Assign`, because the server's step is the method's own.
        alpha: strength of the regulariser, > 0.

    Raises:
        InputError: alpha is out of range, another rule is given, or `local` has a client update of the user's own.

    Paper: Algorithm 1; alpha is 0.001 to 0.1.

    Deviations: a client takes the steps set by `local`, not as many as the minimum needs. h and the step by h concern
    parameters; all other entries take the mean. The server stores v = -h / alpha, which does not depend on alpha: as
    alpha falls to 0, the method tends to v <- v + 1 / K sum_k (w_k - w_t), w <- mean_k w_k + v with plain client
    updates, not to FedAvg.
    """
    require_float32("algorithm.alpha", alpha, "> 0", 0.01)
    require_no_rule(server, "for feddyn, which has its own step")
    require_defaults(local, "feddyn", "method")
    return fedavg(participation, replace(local, method=Dynamic(alpha)), Accumulated(), weighting="equal")


@dataclass(frozen=True)
class Dynamic(Method):
    """Terms -h_k + alpha (w - w_t) of each step; h_k is the slot "dual"."""

    personal = ("dual",)
    first_terms = (AffineTerm(b=-1.0, v="dual"),)

    alpha: float

    @property
    def terms(self) -> tuple[AffineTerm, ...]:
        return (pull(self.alpha),)

    def finish(self, steps: LocalSteps, lane: int, count: int) -> None:
        for w, received, dual in steps.values(lane, RECEIVED, "dual"):
            dual.sub_(self.alpha * (w - received))


@dataclass(frozen=True)
class Accumulated:
    """Mean and the sum of all clients' changes so far: v <- v + 1 / K sum_k (w_k - w),  w <- mean_k w_k + v.

    Args:
        clients: K, the number of training clients, set by `fitted`.
    """

    clients: int = 1

    def fitted(self, census: Census) -> Self:
        """Return the rule for these training clients."""
        return replace(self, clients=len(census.clients))

    def __call__(
        self, model: Packed, mean: Packed, total: float, memory: Memory, layout: Layout
    ) -> tuple[Packed, Memory]:
        new = mean.floats.astype(np.float64)
        v = memory.get("v", np.zeros_like(new)) + total / self.clients * (new - model.floats)
        return on_parameters(new + v, mean, layout), {"v": v}
