"""FixBN: Zhong et al., "Making Batch Normalization Great in Federated Deep Learning", 2023."""

from dataclasses import replace
from typing import Literal

from algorithms.engine.errors import require
from algorithms.fedavg import fedavg
from algorithms.parts.algorithm import Algorithm
from algorithms.parts.local import Local
from algorithms.parts.phases import After, Window, phases
from algorithms.parts.schedule import Sample
from algorithms.parts.server import Assign, Server
from algorithms.parts.sharing import Maintained
from algorithms.parts.weighting import Equal, Samples


def fixbn(
    sample: Sample,
    local: Local,
    server: Server = Assign(),
    *,
    fix_after: int | float | Literal["window"] = 0.5,
    width: int = 20,
    tau: float = 1e-4,
    decide: Literal["mean", "all", "any"] = "mean",
    absent: Literal["ignore", "wait"] = "ignore",
    fixed: Literal["statistics", "affine", "both"] = "statistics",
    weighting: Literal["equal", "samples"] = "equal",
    maintained_momentum: Maintained = "none",
) -> Algorithm:
    """FedAvg that from a round on normalises by the global batch-norm statistics, in training too.

        t <= T*:  FedAvg;   t > T*:  FedAvg whose visits normalise by the statistics that round T* left

    Args:
        sample: how a round's cohort is drawn.
        local: what a visit does.
        server: how the mean becomes the next model.
        fix_after: the paper's T*: a share of the rounds in (0, 1), or a round, from `rounds` on it is FedAvg; or
            "window": once the statistics change evenly, which the following four say; see `Window`.
        width: the paper's W, >= 2: visits of a client in its window.
        tau: the paper's tau, > 0.
        decide: whose variance has to be below it: the clients' "mean", "all" clients' or "any" one's.
        absent: whether clients with fewer visits are left out ("ignore"), or waited for ("wait").
        fixed: what stays after T*: the "statistics", the "affine" entries (scale and shift), or "both" (Table H).
        weigh: a model's share in the mean: "equal" (appendix C) or "samples" (equation 6).
        maintained_momentum: what momentum starts from in a visit: 0 ("none"), where the client's last one left it
            ("local"), or the mean of where the last cohort's did ("global").

    Raises:
        InputError: a number is out of range; momentum is maintained and `local` has none; the model has no batch-norm
            layer (when the parts meet the model).

    Paper: section 6.2, appendix C, Algorithm 1; T* is half of the rounds. The window: B.6. Momentum: section 7.

    Deviations: maintained momentum travels and is averaged with the model's own weights, where the paper says equation
    6; what B.6 leaves open is in `Window`.
    """
    known = fixed in ("statistics", "affine", "both")
    require(known, "algorithm.fixed", fixed, '"statistics", "affine" or "both"', 'set algorithm.fixed = "statistics"')
    first = fedavg(sample, local, server, maintained_momentum=maintained_momentum)
    first = replace(first, weighting=Equal() if weighting == "equal" else Samples(), needs_batch_norm=True)
    rule = Window(width, tau, decide, absent) if fix_after == "window" else After(fix_after)
    second = replace(
        local,
        statistics=local.statistics if fixed == "affine" else "frozen",
        affine=local.affine if fixed == "statistics" else "frozen",
    )
    return phases(first, (rule, replace(first, local=second)))
