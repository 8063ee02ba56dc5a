"""FedBABU: Oh et al., "FedBABU: Toward Enhanced Representation for Federated Image Classification", 2022."""

from dataclasses import replace

from algorithms.fedper import fedper
from algorithms.parts.algorithm import Algorithm
from algorithms.parts.schedule import Participation
from algorithms.parts.server import Assign, Server
from algorithms.parts.weighting import WeightingName
from algorithms.training.local import Local, require_defaults


def fedbabu(
    participation: Participation, local: Local, server: Server = Assign(), *, weighting: WeightingName = "samples"
) -> Algorithm:
    """Run FedAvg on the body; the head keeps its initial values, and is fine-tuned only at evaluation.

        w_B <- sum_k n_k w_(B,k) / sum_k n_k,   w_(B,k) <- w_B - lr grad_B F_k(w_B, w_H),   w_H as drawn

    Set `evaluate.finetune` for the paper's personalised models.

    Args:
        participation: rule that draws a round's cohort.
        local: content of a client update.
        server: step from the mean to the next global model.
        weighting: share of a model in the mean: "samples", as in the paper, or "equal".

    Raises:
        InputError: `local.part` is not "all", or the model is its head alone (when the parts meet the model).

    Paper: Algorithm 1, section 4.

    Deviations: none. The head is personal state that never changes, so it is not sent.
    """
    require_defaults(local, "fedbabu", "part")
    return fedper(participation, replace(local, part="body"), server, weighting=weighting)
