"""FedNova: Wang et al., "Tackling the Objective Inconsistency Problem in ... Federated Optimization", 2020."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from algorithms.core.report import Report, UpdateRows
from algorithms.fedavg import fedavg
from algorithms.fedprox import with_proximal
from algorithms.parts.algorithm import Algorithm
from algorithms.parts.schedule import Participation
from algorithms.parts.server import Assign, Server, Stretched
from algorithms.parts.weighting import Weighting, WeightingName
from algorithms.training.local import Local, require_defaults


def fednova(
    participation: Participation,
    local: Local,
    server: Server = Assign(),
    *,
    proximal: float = 0.0,
    weighting: WeightingName = "samples",
) -> Algorithm:
    """Average the clients' changes per local step, so that clients that take more steps do not pull harder.

        d_k = (w_k - w) / |a_k|_1,   tau = sum_k p_k |a_k|_1,   w <- w + tau sum_k p_k d_k

    a_k holds the factors of the gradients in the change of client k. For plain SGD |a_k|_1 is its number of steps t;
    with momentum rho it is (t - rho (1 - rho^t) / (1 - rho)) / (1 - rho), with the proximal term mu
    (1 - (1 - lr mu)^t) / (lr mu).

    Args:
        participation: rule that draws a round's cohort.
        local: content of a client update: SGD, also with momentum.
        server: step from w + tau sum_k p_k d_k to the next global model.
        proximal: FedProx's mu, >= 0.
        weighting: the shares p_k: "samples", as in the paper, or "equal".

    Raises:
        InputError: `local` has Nesterov's momentum, another optimizer, a schedule, a client update of one's own, or a
            learning rate that decays together with a proximal term.

    Paper: section 4. If all clients take equally many steps it is FedAvg.

    Deviations: p_k is normalised over the cohort. Momentum and proximal term together take |a_k|_1 of both. Weight
    decay is a part of the gradient. Only parameters take the step; all other entries take the mean by p_k / |a_k|_1.
    """
    require_defaults(local, "fednova", "optimizer", "nesterov", "lr_schedule")
    if proximal:
        require_defaults(local, "fednova with algorithm.proximal", "lr_decay")
    plain = fedavg(participation, with_proximal(local, proximal), weighting=weighting)
    shares = PerStep(plain.weighting, local.momentum, local.lr * proximal)
    return replace(plain, weighting=shares, server=Stretched(shares, server))


@dataclass(frozen=True)
class PerStep:
    """Weight divided by the length of the client update: p_k / |a_k|_1.

    Args:
        shares: weighting that gives p_k.
        momentum: momentum of the local steps.
        pull: learning rate times proximal term.
    """

    shares: Weighting
    momentum: float = 0.0
    pull: float = 0.0

    def __call__(self, report: Report) -> float:
        return self.shares(report) / length(int(report["steps"]), self.momentum, self.pull)

    def stretch(self, updates: UpdateRows) -> float:
        """Return tau sum_k p_k / |a_k|_1, the factor on the step to the mean by p_k / |a_k|_1."""
        counted = updates.weights > 0
        weights, steps = updates.weights[counted], updates.column("steps")[counted].astype(int).tolist()
        lengths = np.array([length(count, self.momentum, self.pull) for count in steps])
        return float(weights.sum() * (weights @ lengths**2) / (weights @ lengths) ** 2)


@cache
def length(steps: int, momentum: float, pull: float) -> float:
    """Return |a|_1 after some local steps, from the effect on the weights, t steps later, of a gradient of 1.

    Args:
        steps: number of steps.
        momentum: momentum of the steps.
        pull: learning rate times proximal term.
    """
    velocity, moved, total = 1.0, 0.0, 0.0
    for _ in range(steps):
        moved += velocity
        total += abs(moved)
        velocity = momentum * velocity - pull * moved
    return total
