"""FedBS: Idrissi et al., "FedBS: Learning on Non-IID Data in Federated Learning using Batch Normalization", 2021."""

from dataclasses import replace
from typing import Literal

from algorithms.fedavg import fedavg
from algorithms.fedprox import with_proximal
from algorithms.parts.algorithm import Algorithm, phases
from algorithms.parts.rules import LossAgreement
from algorithms.parts.schedule import Participation
from algorithms.parts.server import Assign, Server
from algorithms.parts.weighting import ClientLoss, Equal, LossKind
from algorithms.training.local import Local


def fedbs(
    participation: Participation,
    local: Local,
    server: Server = Assign(),
    *,
    epsilon: float = 0.1,
    patience: int = 5,
    proximal: float = 0.01,
    deviation: Literal["population", "sample"] = "population",
    loss: LossKind = "training",
) -> Algorithm:
    """Weight models by their loss in a warm-up, then run FedProx with equal weights.

        w <- sum_k F_k / (sum_j F_j) w_k   over all entries, batch-norm statistics included,
        until std_k F_k <= epsilon in `patience` rounds in a row; then FedProx, w <- 1/m sum_k w_k

    Args:
        participation: rule that draws a round's cohort.
        local: content of a client update.
        server: step from the mean to the next global model.
        epsilon: largest standard deviation of losses that agree, > 0.
        patience: the paper's r, >= 1: rounds in a row with losses that agree.
        proximal: FedProx's mu in the second phase, >= 0.
        deviation: divisor of the variance: m ("population") or m - 1 ("sample").
        loss: F_k: mean loss of the samples during training ("training"), or local objective "after" training.

    Paper: section IV, Algorithm 1; epsilon 0.1 and r 5 in section V.

    Deviations: the paper does not define F_k, mu or the kind of standard deviation. By default F_k is the mean loss of
    the samples during training. Algorithm 1 prints std < epsilon and no r; the text has <= and r rounds, which
    we follow.
    """
    agreement = LossAgreement(epsilon, patience, deviation, loss)
    warm = replace(fedavg(participation, local, server), weighting=ClientLoss(loss))
    return phases(warm, (agreement, replace(warm, weighting=Equal(), local=with_proximal(local, proximal))))
