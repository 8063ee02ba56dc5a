"""FixBN: Zhong et al., "Making Batch Normalization Great in Federated Deep Learning", 2023."""

from dataclasses import replace
from typing import Literal

from algorithms.core.errors import require, require_one
from algorithms.fedavg import fedavg
from algorithms.parts.algorithm import Algorithm, phases
from algorithms.parts.rules import AfterRound, SteadyStatistics, ends_phase
from algorithms.parts.schedule import Participation
from algorithms.parts.server import Assign, Server
from algorithms.parts.sharing import MaintainedMomentum
from algorithms.parts.weighting import WeightingName
from algorithms.training.local import Local


def fixbn(
    participation: Participation,
    local: Local,
    server: Server = Assign(),
    *,
    fix_after: int | float | Literal["window"] = 0.5,
    width: int = 20,
    tau: float = 1e-4,
    decide: Literal["mean", "all", "any"] = "mean",
    absent: Literal["ignore", "wait"] = "ignore",
    fixed: Literal["statistics", "affine", "both"] = "statistics",
    weighting: WeightingName = "equal",
    maintained_momentum: MaintainedMomentum = "none",
) -> Algorithm:
    """Run FedAvg, and after some round normalise by the global batch-norm statistics in training too.

        t <= T*:  FedAvg;   t > T*:  FedAvg, but client updates normalise by the statistics after round T*

    Args:
        participation: rule that draws a round's cohort.
        local: content of a client update.
        server: step from the mean to the next global model.
        fix_after: the paper's T*: a round, or a share of the rounds in (0, 1). A round >= `rounds` gives FedAvg.
            "window" waits until the statistics change evenly; see `SteadyStatistics` for the next four.
        width: the paper's W, >= 2: client updates of a client in its window.
        tau: the paper's tau, > 0.
        decide: variance compared with tau: the clients' "mean", "all" clients' or "any" client's.
        absent: "ignore" leaves out clients with fewer than W updates; "wait" waits until they have W.
        fixed: entries that stay after T*: the "statistics", the "affine" ones (scale and shift), or "both" (Table H).
        weighting: share of a model in the mean: "equal" (appendix C) or "samples" (equation 6).
        maintained_momentum: start of the momentum in a client update, as in `fedavg`.

    Raises:
        InputError: a number is out of range; momentum is maintained, but `local` has none; or the model has no
            batch-norm layer (when the parts meet the model).

    Paper: section 6.2, appendix C, Algorithm 1; T* is half of the rounds. The window: B.6. Momentum: section 7.

    Deviations: global momentum is averaged with the model's own weighting, while the paper names equation 6. For the
    open points of B.6 see `SteadyStatistics`.
    """
    require_one("algorithm.fixed", fixed, ("statistics", "affine", "both"), 'set algorithm.fixed = "statistics"')
    allowed = 'a whole number >= 1, a share of the rounds in (0, 1), or "window"'
    fits = fix_after == "window" or ends_phase(fix_after)
    require(fits, "algorithm.fix_after", fix_after, allowed, "set algorithm.fix_after = 0.5")
    first = fedavg(participation, local, server, weighting=weighting, maintained_momentum=maintained_momentum)
    rule = SteadyStatistics(width, tau, decide, absent) if fix_after == "window" else AfterRound(fix_after)
    second = replace(
        local,
        statistics=local.statistics if fixed == "affine" else "frozen",
        affine=local.affine if fixed == "statistics" else "frozen",
    )
    return phases(first, (rule, replace(first, local=second)))
