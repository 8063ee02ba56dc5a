"""FixBN: Zhong et al., "Making Batch Normalization Great in Federated Deep Learning", 2023."""

from dataclasses import replace
from typing import Literal

from algorithms.algorithm import Algorithm
from algorithms.fedavg import fedavg
from algorithms.local import Local
from algorithms.phases import phases
from algorithms.schedule import Sample
from algorithms.server import Assign, Server
from algorithms.weigh import Equal, Samples


def fixbn(
    sample: Sample,
    local: Local,
    server: Server = Assign(),
    *,
    fix_after: int | float = 0.5,
    weigh: Literal["equal", "samples"] = "equal",
) -> Algorithm:
    """FedAvg that from a round on normalises by the global batch-norm statistics, in training too.

        t <= T*:  FedAvg;   t > T*:  FedAvg whose visits normalise by the statistics that round T* left

    Args:
        sample: how a round's cohort is drawn.
        local: what a visit does.
        server: how the mean becomes the next model.
        fix_after: the paper's T*: a share of the rounds in (0, 1), or a round; from `rounds` on it is FedAvg.
        weigh: a model's share in the mean: "equal" (appendix C) or "samples" (equation 6).

    Raises:
        InputError: a number is out of range, or the model has no batch-norm layer (when the parts meet the model).

    Paper: section 6.2, appendix C, Algorithm 1; T* is half of the rounds.

    Deviations: not here: the sliding window of B.6, fixing the affine entries (Table
    H) and maintained momentum (section 7).
    """
    first = replace(fedavg(sample, local, server), weigh=Equal() if weigh == "equal" else Samples())
    return phases(first, (fix_after, replace(first, local=replace(local, statistics="frozen"))))
