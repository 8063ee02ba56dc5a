"""Static batch norm: Diao et al., "HeteroFL: Computation and Communication Efficient Federated Learning", 2020."""

from dataclasses import replace

from algorithms.fedavg import fedavg
from algorithms.parts.algorithm import Algorithm
from algorithms.parts.local import Local
from algorithms.parts.schedule import Sample
from algorithms.parts.server import Assign, Server


def static_bn(sample: Sample, local: Local, server: Server = Assign()) -> Algorithm:
    """FedAvg whose batch norm tracks nothing in training; the clients are asked for statistics to evaluate with.

        training:    x <- (x - mu_batch) / sigma_batch, and no running statistics
        evaluation:  mu, sigma^2 = sum_b n_b mu_b / sum_b n_b, sum_b n_b sigma_b^2 / sum_b n_b,
                     over the batches b of all training clients' data, under the global model

    Args:
        sample: how a round's cohort is drawn.
        local: what a visit does; its `statistics` become "untracked".
        server: how the mean becomes the next model.

    Raises:
        InputError: the model has no batch-norm layer (when the parts meet the model).

    Paper: HeteroFL, section "Static Batch Normalization"; compared with in FixBN, Table 5.

    Deviations: HeteroFL's other parts (widths of a client's model, scaling, masked loss) are not here. The clients are
    asked at every evaluation, not only after training, and for the model that is written; no protocol bytes are counted
    for it. A batch has up to 1024 samples and weighs by them. Before the first round the initial model is evaluated as
    it is.
    """
    return fedavg(sample, replace(local, statistics="untracked"), server)
