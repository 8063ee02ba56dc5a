"""FedAvg: McMahan et al., "Communication-Efficient Learning of Deep Networks from Decentralized Data", 2017."""

from algorithms.parts.algorithm import Algorithm
from algorithms.parts.local import Local
from algorithms.parts.schedule import Rounds, Sample
from algorithms.parts.server import Assign, Server
from algorithms.parts.sharing import MAINTAINED, Maintained, Sharing
from algorithms.parts.weighting import Samples


def fedavg(
    sample: Sample, local: Local, server: Server = Assign(), *, maintained_momentum: Maintained = "none"
) -> Algorithm:
    """Federated averaging: the mean of the cohort's models, by their numbers of samples.

        w <- sum_k n_k w_k / sum_k n_k

    Args:
        sample: how a round's cohort is drawn.
        local: what a visit does.
        server: how the mean becomes the next model.
        maintained_momentum: what `local.momentum` starts from in a visit: 0 ("none"), where the client's last one left
            it ("local"), or the mean of where the last cohort's did ("global").

    Raises:
        InputError: momentum is maintained, and `local` has none.

    Paper: Algorithm 1. Also RADFed (Xue et al.), section III, first equation. Maintained momentum: FixBN, section 7.

    Deviations: n_k / n is normalised over the cohort, not over all clients; the batch-norm entries of a model
    that has them are averaged like all others.
    """
    return Algorithm(Rounds(sample), local, Sharing(slots=MAINTAINED[maintained_momentum]), Samples(), server)
