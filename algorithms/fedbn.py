"""FedBN: Li et al., "FedBN: Federated Learning on Non-IID Features via Local Batch Normalization", 2021."""

from typing import Literal

from algorithms.engine.errors import require
from algorithms.parts.algorithm import Algorithm
from algorithms.parts.local import Local
from algorithms.parts.schedule import Rounds, Sample
from algorithms.parts.server import Assign, Server
from algorithms.parts.sharing import Sharing
from algorithms.parts.weighting import Equal, Samples


def fedbn(
    sample: Sample,
    local: Local,
    server: Server = Assign(),
    *,
    weighting: Literal["equal", "samples"] = "equal",
    newcomer: Literal["initial", "average"] = "initial",
    outsider: Literal["average", "own"] = "average",
) -> Algorithm:
    """FedAvg whose batch-norm layers stay with the clients: affine, statistics and counter.

        w^(l) <- 1/K sum_k w_k^(l)   for every layer l that is not batch norm

    Args:
        sample: how a round's cohort is drawn; the paper visits all clients.
        local: what a visit does.
        server: how the mean becomes the next model.
        weigh: a model's share in the mean: "equal", as the paper's, or "samples".
        newcomer: what a client without batch-norm entries of its own starts from; see `Place`.
        outsider: the statistics that a client that never trains is evaluated with: the "average", as FedBS compares
            it, or its "own", beside averaged affine entries (appendix G, second case).

    Raises:
        InputError: the model has no batch-norm layer (when the parts meet the model).

    Paper: Algorithm 1, appendices C and G.

    Deviations: none in training. Data of no client, or of one that keeps no entries yet, is evaluated with the
    average of the last merged cohort's batch-norm entries, which the paper defines for outsiders' affine ones alone.
    """
    place = Sharing(affine="personal", statistics="personal", newcomer=newcomer, outsider=outsider)
    return Algorithm(Rounds(sample), local, place, Equal() if weighting == "equal" else Samples(), server)


def singleset(sample: Sample, local: Local, server: Server = Assign()) -> Algorithm:
    """Every client alone: the whole model stays with the client, and nothing travels.

        w_k <- ClientUpdate(k, w_k)

    Args:
        sample: how a round's cohort is drawn; the paper visits all clients.
        local: what a visit does.
        server: nothing arrives there, so it has to be `Assign`.

    Raises:
        InputError: another rule is given.

    Paper: section 5.1, the baseline "SingleSet".

    Deviations: data of no client is evaluated with the average of the last cohort's models, which the paper does not
    define.
    """
    holds = isinstance(server, Assign)
    require(holds, "server.rule", server, "'assign' where nothing travels", "remove the table [server]")
    place = Sharing(weights="personal", affine="personal", statistics="personal")
    return Algorithm(Rounds(sample), local, place, Equal(), server)
