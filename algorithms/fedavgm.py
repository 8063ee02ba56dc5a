"""FedAvgM: Hsu, Qi and Brown, "Measuring the Effects of Non-Identical Data Distribution ...", 2019."""

from algorithms.fedavg import fedavg
from algorithms.parts.algorithm import Algorithm
from algorithms.parts.arguments import require_rule
from algorithms.parts.schedule import Participation
from algorithms.parts.server import Momentum, Server
from algorithms.parts.weighting import WeightingName
from algorithms.training.local import Local


def fedavgm(
    participation: Participation, local: Local, server: Server = Momentum(), *, weighting: WeightingName = "samples"
) -> Algorithm:
    """Run FedAvg with momentum at the server.

        v <- beta v + sum_k p_k (w_k - w),   w <- w + lr v

    Args:
        participation: rule that draws a round's cohort.
        local: content of a client update.
        server: rule `momentum` with its parameters; with beta 0 and lr 1 it is FedAvg.
        weighting: share of a model in the mean: "samples", as in the paper, or "equal".

    Raises:
        InputError: the server has another rule.

    Paper: section 4.3; beta is 0 to 0.997, lr 1.

    Deviations: all entries other than parameters take the mean; see `Momentum`.
    """
    require_rule(server, Momentum, "momentum", "fedavgm")
    return fedavg(participation, local, server, weighting=weighting)
