"""RADFed: Xue, Klabjan, Luo, "Aggregation Delayed Federated Learning"."""

from algorithms.algorithm import Algorithm
from algorithms.local import Local
from algorithms.place import Place
from algorithms.schedule import Rounds, Sample
from algorithms.server import Assign, Server
from algorithms.weigh import Equal


def radfed(sample: Sample, local: Local, server: Server = Assign(), *, merge_every: int = 15) -> Algorithm:
    """Randomised aggregation-delayed federated learning: models are redistributed S - 1 times, then merged.

        w^i_(s+1) <- ClientUpdate(U_i, w^i_s),  U: m clients drawn anew in each s = 1..S
        w_(t+1)   <- 1/m sum_i w^i_(S+1)

    Args:
        sample: how each round's cohort U is drawn.
        local: what a visit does.
        server: how the mean becomes the next model.
        merge_every: the paper's S, >= 1 (Table II: 15 to 80); with 1 it is FedAvg with equal weights.

    Paper: section III-A, Algorithm 1.

    Deviations: `rounds` counts local training rounds (the paper's T x S, the x-axis of its figures), and the last
    one merges even when it is not an S-th. Which model goes to which client of U is a permutation of its own.
    """
    return Algorithm(Rounds(sample, merge_every), local, Place(), Equal(), server)
