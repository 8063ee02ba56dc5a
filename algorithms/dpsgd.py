"""D-PSGD: Lian et al., "Can Decentralized Algorithms Outperform Centralized Algorithms?", 2017."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, get_args

from algorithms.core.errors import require_one
from algorithms.core.fleet import Fleet
from algorithms.core.state import State
from algorithms.options.topology import Gossip, Order, Topology
from algorithms.parts.algorithm import Algorithm
from algorithms.parts.arguments import require_no_rule
from algorithms.parts.schedule import Participation, Rounds
from algorithms.parts.server import Assign, Server
from algorithms.parts.sharing import Sharing
from algorithms.parts.weighting import Equal
from algorithms.training.local import Local

if TYPE_CHECKING:
    from algorithms.rounds.round import PendingRound


@dataclass(frozen=True)
class GossipRound(Gossip):
    """Round of clients that send each other their models; see `dpsgd`."""

    def __call__(self, state: State, algorithm: Algorithm, fleet: Fleet, *, last: bool = False) -> PendingRound:
        """Start a round; arguments as in `start_round`."""
        from algorithms.rounds.gossip import start_gossip

        return start_gossip(state, algorithm, fleet, self)


def dpsgd(
    participation: Participation, local: Local, server: Server = Assign(), *, order: Order = "adapt-then-combine"
) -> Algorithm:
    """Train without a server: each client trains a model of its own and averages it with its neighbours' (gossip).

        y_i <- ClientUpdate(i, x_i)                               for each client i, in parallel
        x_i <- sum_j W[i, j] y_j                                  "adapt-then-combine"
        x_i <- sum_j W[i, j] x_j + (y_i - x_i)                    "combine-then-adapt"

    W is doubly stochastic and follows from the graph, `Topology`: a ring with Metropolis-Hastings weights unless
    another is given. All clients begin with the initial model. Clients outside a round's cohort keep their models,
    and a share that would go to one of them stays with its sender. The mean of all clients' models is what is
    evaluated and written as the model; a client's own test part is evaluated under
    the client's model, or under the mean until its first cohort.

    Args:
        participation: rule that draws a round's cohort; the paper's has all clients.
        local: content of a client update.
        server: `Assign`, because there is no server.
        order: whether clients send the models that they trained, or those that they began with, as in the paper.

    Raises:
        InputError: a server rule is given, or another order.

    Paper: Algorithm 1. With one local step, "combine-then-adapt" is its lines 3 to 5: gradient at the own model, mean
    of the models before the step. "Adapt-then-combine" is the order that its remark on exchanging lines 4 and 5 allows.

    Deviations: the default order is the remark's, because with several local steps it averages what was trained, and
    on a complete graph it is FedAvg with equal weights. Batch-norm statistics are mixed as well, in both orders those
    that were trained, because a variance may not become negative; a counter becomes the largest of a client's and its
    neighbours'.
    """
    return gossip(participation, local, server, GossipRound(order=order), Topology())


def gossip(
    participation: Participation, local: Local, server: Server, own_round: GossipRound, topology: Topology
) -> Algorithm:
    """Return the algorithm of clients that send each other whole models; arguments as in `dpsgd` and `Topology`."""
    require_one("algorithm.order", own_round.order, get_args(Order), 'set algorithm.order = "adapt-then-combine"')
    require_no_rule(server, "if there is no server")
    sharing = Sharing(weights="personal", affine="personal", statistics="personal")
    return Algorithm(Rounds(participation), local, sharing, Equal(), server, options=(topology,), own_round=own_round)
