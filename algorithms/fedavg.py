"""FedAvg: McMahan et al., "Communication-Efficient Learning of Deep Networks from Decentralized Data", 2017."""

from algorithms.parts.algorithm import Algorithm
from algorithms.parts.schedule import Participation, Rounds
from algorithms.parts.server import Assign, Server
from algorithms.parts.sharing import MOMENTUM_SLOTS, MaintainedMomentum, Sharing
from algorithms.parts.weighting import WeightingName, weighting_of
from algorithms.training.local import Local


def fedavg(
    participation: Participation,
    local: Local,
    server: Server = Assign(),
    *,
    weighting: WeightingName = "samples",
    maintained_momentum: MaintainedMomentum = "none",
) -> Algorithm:
    """Average the cohort's models, by default weighted by their numbers of samples (federated averaging).

        w <- sum_k n_k w_k / sum_k n_k

    Args:
        participation: rule that draws a round's cohort.
        local: content of a client update.
        server: step from the mean to the next global model.
        weighting: share of a model in the mean: "samples", as in the paper, or "equal".
        maintained_momentum: start of the momentum in a client update: 0 ("none"), its value after the client's last
            update ("local"), or the mean of its values after the last cohort's updates ("global").

    Raises:
        InputError: momentum is maintained, but `local` has none.

    Paper: Algorithm 1. Also RADFed (Xue et al.), section III, first equation. Maintained momentum: FixBN, section 7.

    Deviations: n_k / n is normalised over the cohort, not over all clients. Batch-norm entries are averaged like all
    others.
    """
    sharing = Sharing(slots=MOMENTUM_SLOTS[maintained_momentum])
    return Algorithm(Rounds(participation), local, sharing, weighting_of(weighting), server)
