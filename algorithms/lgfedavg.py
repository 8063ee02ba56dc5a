"""LG-FedAvg: Liang et al., "Think Locally, Act Globally: Federated Learning with Local and Global
Representations", 2020.
"""

from typing import Literal

from algorithms.fedper import fedper
from algorithms.parts.algorithm import Algorithm
from algorithms.parts.schedule import Participation
from algorithms.parts.server import Assign, Server
from algorithms.parts.weighting import WeightingName
from algorithms.training.local import Local


def lg_fedavg(
    participation: Participation,
    local: Local,
    server: Server = Assign(),
    *,
    weighting: WeightingName = "samples",
    newcomer: Literal["initial", "average"] = "initial",
) -> Algorithm:
    """Run FedAvg on the classifier; the representation, all other layers, stays with the clients.

        (l_k, g_k) <- ClientUpdate(k, (l_k, g)),   g <- sum_k n_k g_k / sum_k n_k

    Args:
        participation: rule that draws a round's cohort.
        local: content of a client update.
        server: step from the mean to the next global model.
        weighting: share of a model in the mean: "samples", as in the paper, or "equal".
        newcomer: body of a client without its own; see `Sharing`.

    Raises:
        InputError: the model is its head alone (when the parts meet the model).

    Paper: Algorithm 1, 2020, without the auxiliary losses.

    Deviations: training begins at the initial model. The paper's experiments begin at one that FedAvg trained; load
    that by `model.weights`. Data without a client is evaluated with the average body of the last cohort.
    """
    return fedper(participation, local, server, personal=("body",), weighting=weighting, newcomer=newcomer)
