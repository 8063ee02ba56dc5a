"""FedBN: Li et al., "FedBN: Federated Learning on Non-IID Features via Local Batch Normalization", 2021."""

from typing import Literal

from algorithms.parts.algorithm import Algorithm
from algorithms.parts.arguments import require_no_rule
from algorithms.parts.schedule import Participation, Rounds
from algorithms.parts.server import Assign, Server
from algorithms.parts.sharing import Sharing
from algorithms.parts.weighting import Equal, WeightingName, weighting_of
from algorithms.training.local import Local


def fedbn(
    participation: Participation,
    local: Local,
    server: Server = Assign(),
    *,
    weighting: WeightingName = "equal",
    newcomer: Literal["initial", "average"] = "initial",
    outsider: Literal["average", "own"] = "average",
) -> Algorithm:
    """Run FedAvg with personal batch-norm layers: affine entries, statistics and counter stay with the clients.

        w^(l) <- 1/K sum_k w_k^(l)   for every layer l that is not batch norm

    Args:
        participation: rule that draws a round's cohort; the paper trains all clients.
        local: content of a client update.
        server: step from the mean to the next global model.
        weighting: share of a model in the mean: "equal", as in the paper, or "samples".
        newcomer: batch-norm entries of a client without its own; see `Sharing`.
        outsider: statistics for the evaluation of held-out clients: the "average", as in FedBS's comparison, or the
            client's "own", beside averaged affine entries (appendix G, second case).

    Raises:
        InputError: the model has no batch-norm layer (when the parts meet the model).

    Paper: Algorithm 1, appendices C and G.

    Deviations: none in training. Data without a client, or of a client without personal state, is evaluated with the
    average of the last aggregated cohort's batch-norm entries. The paper defines that average only for the affine
    entries of outsiders.
    """
    sharing = Sharing(affine="personal", statistics="personal", newcomer=newcomer, outsider=outsider)
    return Algorithm(Rounds(participation), local, sharing, weighting_of(weighting), server)


def singleset(participation: Participation, local: Local, server: Server = Assign()) -> Algorithm:
    """Train every client alone: the whole model is personal, and nothing travels.

        w_k <- ClientUpdate(k, w_k)

    Args:
        participation: rule that draws a round's cohort; the paper trains all clients.
        local: content of a client update.
        server: `Assign`, because nothing arrives there.

    Raises:
        InputError: another rule is given.

    Paper: section 5.1, the baseline "SingleSet".

    Deviations: data without a client is evaluated with the average of the last cohort's models. The paper does not
    define this.
    """
    require_no_rule(server, "if nothing travels")
    sharing = Sharing(weights="personal", affine="personal", statistics="personal")
    return Algorithm(Rounds(participation), local, sharing, Equal(), server)
