"""FedBS: Idrissi et al., "FedBS: Learning on Non-IID Data in Federated Learning using Batch Normalization", 2021."""

from dataclasses import replace
from typing import Literal

from algorithms.fedavg import fedavg
from algorithms.parts.algorithm import Algorithm
from algorithms.parts.local import Local
from algorithms.parts.phases import Calm, phases
from algorithms.parts.schedule import Sample
from algorithms.parts.server import Assign, Server
from algorithms.parts.weighting import Equal, Loss, LossOf


def fedbs(
    sample: Sample,
    local: Local,
    server: Server = Assign(),
    *,
    epsilon: float = 0.1,
    patience: int = 5,
    proximal: float = 0.01,
    deviation: Literal["population", "sample"] = "population",
    loss: LossOf = "training",
) -> Algorithm:
    """A warm-up that weighs models by their loss, then FedProx with equal weights.

        w <- sum_k F_k / (sum_j F_j) w_k   over all entries, batch-norm statistics included,
        until std_k F_k <= epsilon in `patience` rounds in a row; then FedProx, w <- 1/m sum_k w_k

    Args:
        sample: how a round's cohort is drawn.
        local: what a visit does.
        server: how the mean becomes the next model.
        epsilon: the largest standard deviation of the cohort's losses that counts as calm, > 0.
        patience: the paper's r, >= 1: calm rounds in a row.
        proximal: FedProx's mu in the second phase, >= 0.
        deviation: which standard deviation: over m ("population") or m - 1 ("sample").
        loss: F_k: the mean loss of the samples as they are trained on ("training"), or the local objective "after" it.

    Paper: section IV, Algorithm 1; epsilon 0.1 and r 5 in section V.

    Deviations: the paper leaves open what F_k is (by default the mean loss of the samples as they are trained on), mu,
    and which standard deviation. Algorithm 1 prints std < epsilon and no r; the text has <= and r rounds, as here.
    """
    calm = Calm(epsilon, patience, deviation, loss)
    warm = replace(fedavg(sample, local, server), weighting=Loss(loss))
    return phases(warm, (calm, replace(warm, weighting=Equal(), local=replace(local, proximal=proximal))))
