"""FedProx: Li et al., "Federated Optimization in Heterogeneous Networks", 2020."""

from dataclasses import replace

from algorithms.fedavg import fedavg
from algorithms.parts.algorithm import Algorithm
from algorithms.parts.local import Local
from algorithms.parts.schedule import Sample
from algorithms.parts.server import Assign, Server


def fedprox(sample: Sample, local: Local, server: Server = Assign(), *, proximal: float = 0.01) -> Algorithm:
    """FedAvg whose clients are held near the model that they received.

        min_w F_k(w) + proximal / 2 ||w - w_t||^2,  started from w_t

    Args:
        sample: how a round's cohort is drawn.
        local: what a visit does.
        server: how the mean becomes the next model.
        proximal: the paper's mu, >= 0; with 0 it is FedAvg.

    Paper: Algorithm 2.

    Deviations: a client takes the steps that `local` says, not as many as a gamma-inexact solution needs; models
    are weighted by samples, as RADFed's comparison does, not sampled in proportion to them.
    """
    return fedavg(sample, replace(local, proximal=proximal), server)
