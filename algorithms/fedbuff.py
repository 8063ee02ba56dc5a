"""FedBuff: Nguyen et al., "Federated Learning with Buffered Asynchronous Aggregation", 2022."""

from typing import Literal

from algorithms.fedasync import Staleness, asynchronous_round, staleness_weighting
from algorithms.parts.algorithm import Algorithm
from algorithms.parts.arrivals import Arrivals, Concurrent
from algorithms.parts.schedule import Participation
from algorithms.parts.server import Server, WeightedMix
from algorithms.parts.sharing import Sharing
from algorithms.training.local import Local


def fedbuff(
    participation: Participation,
    local: Local,
    server: Server = WeightedMix(1.0),
    *,
    buffer: int | None = None,
    concurrency: int | None = None,
    staleness: Staleness = "polynomial",
    a: float | None = None,
    b: float | None = None,
    counts: Literal["model", "change"] = "change",
) -> Algorithm:
    """Add arriving changes to a buffer; the server steps when it holds B of them.

        w <- w + eta / B sum_k s(t_k) (w_k - w_(t - t_k)),   s(t) = (1 + t)^-1/2

    Args:
        participation: number of arrivals a round, which makes algorithms comparable at equal work.
        local: content of a client update; its learning rate is that of the round in which it started.
        server: rule `weighted-mix`, whose alpha is eta, in (0, 1].
        buffer: B, updates an aggregation, >= 1; by default the number of arrivals a round.
        concurrency: number of clients that train at a time, each at the speed of its device; by default the number of
            arrivals a round.
        staleness: function s, as in `fedasync`.
        a: parameter of "polynomial" (default 0.5) and "hinge" (default 10), >= 0.
        b: parameter of "hinge" (default 4), >= 0.
        counts: what arrives: the "change" of the model that a client received, or its "model", as in FedAsync.

    Raises:
        InputError: a number is out of range, or s has no such parameter.

    Paper: Algorithm 1; s is its section 5's. With B = 1 and `counts = "model"` it is FedAsync.

    Deviations: eta is at most 1. Batch-norm statistics and other entries that are no parameters take the step towards
    the mean of the clients' values, which keeps variances positive. A client without a step enters the buffer with
    weight 0. The last round aggregates the rest of the buffer, and divides it by B, too, so its step is shorter.
    """
    schedule = Arrivals(participation, Concurrent(concurrency), buffer, counts)
    weighting = staleness_weighting(staleness, a=a, b=b)
    return Algorithm(schedule, local, Sharing(), weighting, server, own_round=asynchronous_round)
