"""FedMMB and FedSMB: Nasirigerdeh et al., "Federated Multi-Mini-Batch", 2020."""

from dataclasses import replace

from algorithms.core.errors import require
from algorithms.parts.algorithm import Algorithm
from algorithms.parts.schedule import Participation, Rounds
from algorithms.parts.server import Assign, Server
from algorithms.parts.sharing import Sharing
from algorithms.parts.weighting import SamplesUsed
from algorithms.training.local import Local


def fedmmb(
    participation: Participation, local: Local, server: Server = Assign(), *, batches: int | None = None
) -> Algorithm:
    """Train each client on the next C batches of its own order (federated multi-mini-batch).

        T = ceil(N_j / B),  f = ceil(T / C):  update i trains on batches p = (i mod f) C to min(p + C, T) - 1
        of its order, which is drawn anew after each f updates;  w <- sum_j n_j w_j / sum_j n_j, n_j the samples used

    Args:
        participation: rule that draws a round's cohort; the paper trains all clients.
        local: content of a client update; `batch_size` is the paper's B.
        server: step from the mean to the next global model.
        batches: the paper's C, >= 1; by default `local.batches`, or else 1.

    Raises:
        InputError: `local` sets epochs or steps, or another number of batches.

    Paper: section 3.2, Algorithm 1.

    Deviations: a client continues after its own last update. Algorithm 1 counts iterations i, which is equivalent if
    all clients are in every cohort. The text reshuffles after ceil(n_j / B) iterations; we follow Algorithm 1, which
    does so after f of them.
    """
    count = local.batches or 1 if batches is None else batches
    agreed = local.batches in (None, count)
    require(agreed, "algorithm.batches, local.batches", (batches, local.batches), "the same", "remove one of them")
    other = local.steps is not None or local.epochs not in (None, 1)
    length = (local.epochs, local.steps)
    require(not other, "local.epochs, local.steps", length, "left out for fedmmb", f"set local.batches = {count}")
    return Algorithm(
        Rounds(participation), replace(local, epochs=None, batches=count), Sharing(), SamplesUsed(), server
    )


def fedsmb(participation: Participation, local: Local, server: Server = Assign()) -> Algorithm:
    """Run FedMMB with C = 1, one batch a client and round (federated single-mini-batch).

    Args:
        participation: rule that draws a round's cohort.
        local: content of a client update; `batch_size` is the paper's B.
        server: step from the mean to the next global model.

    Raises:
        InputError: as `fedmmb`.

    Paper: section 3.1, which compares it with centralised training on batches of K B samples.

    Deviations: as `fedmmb`.
    """
    return fedmmb(participation, local, server, batches=1)
