"""FedProx: Li et al., "Federated Optimization in Heterogeneous Networks", 2020."""

from dataclasses import replace

from algorithms.fedavg import fedavg
from algorithms.parts.algorithm import Algorithm
from algorithms.parts.schedule import Sample
from algorithms.parts.server import Assign, Server
from algorithms.parts.weighting import WeightingName
from algorithms.training.local import Local


def fedprox(
    sample: Sample,
    local: Local,
    server: Server = Assign(),
    *,
    proximal: float = 0.01,
    weighting: WeightingName = "samples",
) -> Algorithm:
    """Run FedAvg with a proximal term that holds clients near the received model.

        min_w F_k(w) + proximal / 2 ||w - w_t||^2,  started from w_t

    Args:
        sample: rule that draws a round's cohort.
        local: content of a client update.
        server: step from the mean to the next global model.
        proximal: the paper's mu, >= 0; with 0 it is FedAvg.
        weighting: share of a model in the mean: "samples" or "equal".

    Paper: Algorithm 2.

    Deviations: a client takes the steps set by `local`, not as many as a gamma-inexact solution needs. Models are
    weighted, by default by samples as in RADFed's comparison, not sampled in proportion to them.
    """
    return fedavg(sample, replace(local, proximal=proximal), server, weighting=weighting)
