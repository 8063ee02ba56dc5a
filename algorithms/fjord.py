"""FjORD: Horvath et al., "FjORD: Fair and Accurate Federated Learning under Heterogeneous Targets with Ordered
Dropout", 2021.
"""

from __future__ import annotations

from dataclasses import replace

from algorithms.fedavg import fedavg
from algorithms.heterofl import LevelsBy, Sizes
from algorithms.parts.algorithm import Algorithm
from algorithms.parts.schedule import Participation
from algorithms.parts.server import Assign, Server
from algorithms.training.local import Local


def fjord(
    participation: Participation,
    local: Local,
    server: Server = Assign(),
    *,
    levels: tuple[float, ...] = (0.2, 0.4, 0.6, 0.8, 1.0),
    shares: tuple[float, ...] = (),
    by: LevelsBy = "client",
    static_bn: bool = True,
) -> Algorithm:
    """Train nested models by ordered dropout: each step of a client trains a width that its device can hold.

        p ~ U{levels <= p_k},  w_k[p] <- w_k[p] - lr grad F_k(w_k[p])   in each local step; w[p]: first channels
        w[i] <- sum_(k: p_k holds i) n_k w_k[i] / sum_(k: p_k holds i) n_k

    An evaluation scores the whole model, and the model of each level below 1 in columns `level_P_TARGET_METRIC`.

    Args:
        participation: rule that draws a round's cohort.
        local: content of a client update.
        server: step from the mean to the next global model.
        levels: widths, shares of the hidden channels; different and in (0, 1].
        shares: share of the clients whose largest width p_k is each level; equal by default.
        by: largest width of a client: drawn once for each "client", or anew in each "round", or by the kind of its
            "device", or by the device's "speed".
        static_bn: whether batch norm tracks nothing in training, and clients give statistics for an evaluation.

    Raises:
        InputError: a value is out of range; or the model's layers cannot be cut (when the parts meet the model).

    Paper: Algorithm 1, sections 3.1 and 4.

    Deviations: knowledge distillation from the largest width of a client is left out. Channels that a step drops still
    move by momentum and weight decay. Batch norm has one scale for all widths, and each width's statistics come from a
    pass at every evaluation.
    """
    local = replace(local, statistics="untracked") if static_bn else local
    return fedavg(participation, local, server).having(Sizes(levels, shares, by, scaler=False, ordered=True))
