"""SCAFFOLD: Karimireddy et al., "SCAFFOLD: Stochastic Controlled Averaging for Federated Learning", 2020."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self

from algorithms.core.clients import Census
from algorithms.core.errors import InputError, require
from algorithms.fedavg import fedavg
from algorithms.parts.algorithm import Algorithm
from algorithms.parts.schedule import Participation
from algorithms.parts.server import Assign, Server
from algorithms.parts.weighting import WeightingName
from algorithms.training.local import Local, require_defaults
from algorithms.training.method import Method
from algorithms.training.terms import RECEIVED, AffineTerm

if TYPE_CHECKING:
    from algorithms.training.steps import LocalSteps


def scaffold(
    participation: Participation, local: Local, server: Server = Assign(), *, weighting: WeightingName = "equal"
) -> Algorithm:
    """Run FedAvg with gradients corrected by control variates, against the drift of the clients.

        g <- g - c_k + c
        c_k' = c_k - c + (w_t - w_k) / (steps lr),   w <- mean_k w_k,   c <- c + m / K mean_k (c_k' - c_k)

    Args:
        participation: rule that draws a round's cohort.
        local: content of a client update: SGD without momentum.
        server: step from the mean to the next global model.
        weighting: share of a client in both means: "equal", as in the paper, or "samples".

    Raises:
        InputError: `local` has momentum or Adam, the cohort's size is drawn, or late client updates count.

    Paper: Algorithm 1 with option II.

    Deviations: none with the rule `assign`, the paper's global step size 1, if every client update takes a step; the
    mean leaves out the others. With `mix`, c moves by the same share as the model. Batch-norm entries are averaged.
    Weighted by samples, c moves by the weighted mean too.
    """
    require_defaults(local, "scaffold", "momentum", "optimizer", "lr_schedule", "method")
    active = participation.active
    require(active == 1, "algorithm.active", active, "1.0 for scaffold (m is fixed)", "leave it out")
    fixed = participation.by != "poisson"
    require(fixed, "algorithm.sampling", participation.by, '"uniform" for scaffold (m is fixed)', "leave it out")
    late = participation.reporting.late
    require(late == "drop", "algorithm.late", late, '"drop" for scaffold (c moves by one cohort)', "leave it out")
    return fedavg(participation, replace(local, method=Controlled()), server, weighting=weighting)


@dataclass(frozen=True)
class Controlled(Method):
    """Gradients corrected by control variates: c_k in the slot "control", c in "common_control".

    Args:
        share: m / K, set by `fitted`; m are the clients of the round.
    """

    personal = ("control",)
    shared = ("common_control",)
    first_terms = (AffineTerm(b=-1.0, v="control"), AffineTerm(b=1.0, v="common_control"))

    share: float = 1.0

    def fitted(self, census: Census, reporting: int | None) -> Self:
        if census.joins is not None:
            raise InputError("algorithm.joins with scaffold: must be left out, because m / K must not vary; remove it")
        return self if reporting is None else replace(self, share=reporting / len(census.clients))

    def finish(self, steps: LocalSteps, lane: int, count: int) -> None:
        for w, received, control, common in steps.values(lane, RECEIVED, "control", "common_control"):
            change = (received - w) / (count * steps.lr) - common
            control.add_(change)
            common.add_(self.share * change)
