"""FedProx: Li et al., "Federated Optimization in Heterogeneous Networks", 2020."""

from __future__ import annotations

from dataclasses import dataclass, replace

from algorithms.core.errors import require
from algorithms.fedavg import fedavg
from algorithms.parts.algorithm import Algorithm
from algorithms.parts.arguments import require_float32
from algorithms.parts.schedule import Participation
from algorithms.parts.server import Assign, Server
from algorithms.parts.weighting import WeightingName
from algorithms.training.local import Local, require_defaults
from algorithms.training.method import Method
from algorithms.training.terms import RECEIVED, AffineTerm, pull


def fedprox(
    participation: Participation,
    local: Local,
    server: Server = Assign(),
    *,
    proximal: float = 0.01,
    weighting: WeightingName = "samples",
) -> Algorithm:
    """Run FedAvg with a proximal term that holds clients near the received model.

        min_w F_k(w) + proximal / 2 ||w - w_t||^2,  started from w_t

    Args:
        participation: rule that draws a round's cohort.
        local: content of a client update.
        server: step from the mean to the next global model.
        proximal: the paper's mu, >= 0; with 0 it is FedAvg.
        weighting: share of a model in the mean: "samples" or "equal".

    Paper: Algorithm 2.

    Deviations: a client takes the steps set by `local`, not as many as a gamma-inexact solution needs. Models are
    weighted, by default by samples as in RADFed's comparison, not sampled in proportion to them.
    """
    return fedavg(participation, with_proximal(local, proximal), server, weighting=weighting)


@dataclass(frozen=True)
class Proximal(Method):
    """Term mu (w - v) of each step; by default v is the received model."""

    mu: float
    v: str = RECEIVED

    @property
    def terms(self) -> tuple[AffineTerm, ...]:
        return (pull(self.mu, self.v),)


def with_proximal(local: Local, proximal: float) -> Local:
    """Return local steps with the term proximal (w - w_t); with 0 they are the given ones."""
    require_float32("algorithm.proximal", proximal, ">= 0", 0)
    if not proximal:
        return local
    why = f"left out with local.update = {local.update and local.update.name!r}, which takes its own steps"
    require(local.update is None, "algorithm.proximal", proximal, why, "set it to 0")
    require_defaults(local, "algorithm.proximal", "method")
    return replace(local, method=Proximal(proximal))
