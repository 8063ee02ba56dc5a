"""SGP: Assran et al., "Stochastic Gradient Push for Distributed Deep Learning", 2019."""

from algorithms.dpsgd import GossipRound, gossip
from algorithms.options.topology import Topology
from algorithms.parts.algorithm import Algorithm
from algorithms.parts.schedule import Participation
from algorithms.parts.server import Assign, Server
from algorithms.training.local import Local


def sgp(participation: Participation, local: Local, server: Server = Assign()) -> Algorithm:
    """Train without a server on a directed graph: clients push shares of their models and of their weights (push-sum).

        x_j <- x_j + (ClientUpdate(j, z_j) - z_j)                 for each client j, in parallel
        x_i <- sum_j P[i, j] x_j,   v_i <- sum_j P[i, j] v_j,   z_i <- x_i / v_i

    P is column-stochastic: each client decides alone how to share what it has. It follows from the graph, `Topology`:
    one-peer exponential unless another is given, in which a client sends to one other a round, at the distances 1, 2,
    4, ... in turn. The weights v begin at 1 and sum to the number of clients. Cohorts, evaluation and the written
    model are those of `dpsgd`, with the models z.

    Args:
        participation: rule that draws a round's cohort; the paper's has all clients.
        local: content of a client update.
        server: `Assign`, because there is no server.

    Raises:
        InputError: a server rule is given.

    Paper: Algorithm 1; the graph: section 3 and appendix A.

    Deviations: as `dpsgd`. A client update may have several steps. Of batch-norm statistics, x_j is v_j times what the
    client update left, because a variance may not become negative. The written model is the mean of all z, not of all
    x; they are equal once the clients agree.
    """
    return gossip(participation, local, server, GossipRound(push_sum=True), Topology("one-peer-exponential"))
