"""FedPer: Arivazhagan et al., "Federated Learning with Personalization Layers", 2019."""

from typing import Literal

from algorithms.parts.algorithm import Algorithm
from algorithms.parts.schedule import Participation, Rounds
from algorithms.parts.server import Assign, Server
from algorithms.parts.sharing import Sharing
from algorithms.parts.weighting import WeightingName, weighting_of
from algorithms.training.local import Local


def fedper(
    participation: Participation,
    local: Local,
    server: Server = Assign(),
    *,
    personal: tuple[str, ...] = ("head",),
    weighting: WeightingName = "samples",
    newcomer: Literal["initial", "average"] = "initial",
) -> Algorithm:
    """Run FedAvg on the base layers; the last layers stay with the clients, and both train together.

        (w_B, w_k) <- ClientUpdate(k, (w_B, w_k)),   w_B <- sum_k n_k w_(B,k) / sum_k n_k

    Args:
        participation: rule that draws a round's cohort; the paper trains all clients.
        local: content of a client update.
        server: step from the mean to the next global model.
        personal: personal parts of the model: "head", "body", or names of layers; without any it is FedAvg.
        weighting: share of a model in the mean: "samples", as in the paper, or "equal".
        newcomer: personal entries of a client without its own; see `Sharing`.

    Raises:
        InputError: the model has no such part (when the parts meet the model).

    Paper: Algorithms 1 and 2.

    Deviations: the personal layers of all clients start from equal values; the paper's clients draw their own. Data
    without a client is evaluated with the average personal layers of the last cohort, which the paper does not define.
    """
    sharing = Sharing(personal=tuple(personal), newcomer=newcomer)
    return Algorithm(Rounds(participation), local, sharing, weighting_of(weighting), server)
