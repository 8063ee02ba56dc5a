"""SiloBN: Andreux et al., "Siloed Federated Learning for Multi-Centric Histopathology Datasets", 2020."""

from typing import Literal

from algorithms.parts.algorithm import Algorithm
from algorithms.parts.schedule import Participation, Rounds
from algorithms.parts.server import Assign, Server
from algorithms.parts.sharing import Sharing
from algorithms.parts.weighting import WeightingName, weighting_of
from algorithms.training.local import Local


def silobn(
    participation: Participation,
    local: Local,
    server: Server = Assign(),
    *,
    weighting: WeightingName = "equal",
    newcomer: Literal["initial", "average"] = "initial",
    outsider: Literal["average", "own"] = "own",
) -> Algorithm:
    """Run FedAvg with personal batch-norm statistics; scale and shift are averaged like all weights.

        w^(l), gamma, beta <- 1/K sum_k w_k^(l), gamma_k, beta_k;   mu_k, sigma_k stay with client k

    Args:
        participation: rule that draws a round's cohort.
        local: content of a client update.
        server: step from the mean to the next global model.
        weighting: share of a model in the mean, "equal" or "samples".
        newcomer: statistics of a client without its own; see `Sharing`.
        outsider: statistics for the evaluation of held-out clients: the client's "own", as in the paper, or the
            "average"; see `Sharing`.

    Raises:
        InputError: the model has no batch-norm layer (when the parts meet the model).

    Paper: section 3; compared with in FedBN, appendix C, and FedBS, section II.

    Deviations: data without a client is evaluated with the average of the last aggregated cohort's statistics. The
    paper does not define this.
    """
    sharing = Sharing(affine="shared", statistics="personal", newcomer=newcomer, outsider=outsider)
    return Algorithm(Rounds(participation), local, sharing, weighting_of(weighting), server)
