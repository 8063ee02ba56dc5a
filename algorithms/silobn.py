"""SiloBN: Andreux et al., "Siloed Federated Learning for Multi-Centric Histopathology Datasets", 2020."""

from typing import Literal

from algorithms.parts.algorithm import Algorithm
from algorithms.parts.local import Local
from algorithms.parts.schedule import Rounds, Sample
from algorithms.parts.server import Assign, Server
from algorithms.parts.sharing import Sharing
from algorithms.parts.weighting import Equal, Samples


def silobn(
    sample: Sample,
    local: Local,
    server: Server = Assign(),
    *,
    weighting: Literal["equal", "samples"] = "equal",
    newcomer: Literal["initial", "average"] = "initial",
    outsider: Literal["average", "own"] = "own",
) -> Algorithm:
    """FedAvg whose batch-norm statistics stay with the clients; scale and shift are averaged like all weights.

        w^(l), gamma, beta <- 1/K sum_k w_k^(l), gamma_k, beta_k;   mu_k, sigma_k stay with client k

    Args:
        sample: how a round's cohort is drawn.
        local: what a visit does.
        server: how the mean becomes the next model.
        weigh: a model's share in the mean, "equal" or "samples".
        newcomer: what a client without statistics of its own starts from; see `Place`.
        outsider: the statistics that a client that never trains is evaluated with: its "own", as the paper's, or the
            "average"; see `Place`.

    Raises:
        InputError: the model has no batch-norm layer (when the parts meet the model).

    Paper: section 3; compared with in FedBN, appendix C, and FedBS, section II.

    Deviations: data of no client is evaluated with the average of the last merged cohort's statistics, which the paper
    does not define.
    """
    place = Sharing(affine="shared", statistics="personal", newcomer=newcomer, outsider=outsider)
    return Algorithm(Rounds(sample), local, place, Equal() if weighting == "equal" else Samples(), server)
