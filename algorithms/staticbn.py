"""Static batch norm: Diao et al., "HeteroFL: Computation and Communication Efficient Federated Learning", 2020."""

from dataclasses import replace

from algorithms.fedavg import fedavg
from algorithms.parts.algorithm import Algorithm
from algorithms.parts.schedule import Participation
from algorithms.parts.server import Assign, Server
from algorithms.training.local import Local


def static_bn(participation: Participation, local: Local, server: Server = Assign()) -> Algorithm:
    """Run FedAvg with batch norm that tracks nothing in training; clients give statistics for evaluation.

        training:    x <- (x - mu_batch) / sigma_batch, and no running statistics
        evaluation:  mu, sigma^2 = sum_b n_b mu_b / sum_b n_b, sum_b n_b sigma_b^2 / sum_b n_b,
                     over the batches b of all training clients' data, under the global model

    Args:
        participation: rule that draws a round's cohort.
        local: content of a client update; its `statistics` become "untracked".
        server: step from the mean to the next global model.

    Raises:
        InputError: the model has no batch-norm layer (when the parts meet the model).

    Paper: HeteroFL, section "Static Batch Normalization"; compared with in FixBN, Table 5.

    Deviations: HeteroFL's other parts (widths of a client's model, scaling, masked loss) are left out. The clients give
    statistics at every evaluation and for the written model, not only after training; no protocol bytes are counted.
    A batch has up to 1024 samples and is weighted by them. Before the first round the initial model is evaluated
    unchanged.
    """
    return fedavg(participation, replace(local, statistics="untracked"), server)
