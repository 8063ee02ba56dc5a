"""APFL: Deng, Kamani and Mahdavi, "Adaptive Personalized Federated Learning", 2020."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from algorithms.core.entries import SECOND_MODEL
from algorithms.core.errors import require
from algorithms.core.layout import Scope
from algorithms.fedavg import fedavg
from algorithms.parts.algorithm import Algorithm
from algorithms.parts.arguments import require_float32
from algorithms.parts.schedule import Participation
from algorithms.parts.server import Assign, Server
from algorithms.parts.weighting import WeightingName
from algorithms.training.local import Local, require_defaults
from algorithms.training.method import Method

if TYPE_CHECKING:
    import torch

    from algorithms.training.steps import LocalSteps, Substep


def apfl(
    participation: Participation,
    local: Local,
    server: Server = Assign(),
    *,
    share: float = 0.5,
    share_lr: float = 0.1,
    weighting: WeightingName = "equal",
) -> Algorithm:
    """Run FedAvg, and beside it train a model of each client's own that is mixed with the shared one.

        u <- share_k v_k + (1 - share_k) w_k,   w_k <- w_k - lr grad F_k(w_k),   v_k <- v_k - lr share_k grad F_k(u)
        share_k <- share_k - share_lr <grad F_k(u), v_k - w_t>, within [0, 1], at the first batch of a client update

    A client is evaluated with the mixture of v_k and the global model.

    Args:
        participation: rule that draws a round's cohort.
        local: content of a client update: plain SGD, for both models.
        server: step from the mean to the next global model.
        share: first share of the client's own model, in [0, 1]: the paper's alpha.
        share_lr: rate of the share, >= 0; with 0 it stays.
        weighting: share of a model in the mean: "equal", as in the paper, or "samples".

    Raises:
        InputError: a number is out of range, or `local` is not plain SGD.

    Paper: Algorithm 1, with the adaptive share of section 4.

    Deviations: the share has a rate of its own. It moves once a client update, as in the authors' code, when w_k is
    still the received model. The reported steps count each batch twice, and the loss is the mean of both models'.
    """
    require(0 <= share <= 1, "algorithm.share", share, "in [0, 1]", "set algorithm.share = 0.5")
    require_float32("algorithm.share_lr", share_lr, ">= 0", 0.1)
    require_defaults(local, "apfl", "optimizer", "momentum", "method")
    return fedavg(participation, replace(local, method=Mixed(float(share), share_lr)), server, weighting=weighting)


STACKS = (None, SECOND_MODEL, "next", "apart")


@dataclass(frozen=True)
class Mixed(Method):
    """Two steps on each batch: of w, and of v by the gradient of their mixture u.

    Between the two, u is the model, the slot "next" holds the stepped w, and "apart" v - w.
    """

    share: float
    share_lr: float

    @property
    def slots(self) -> dict[str, Scope | float]:
        return {SECOND_MODEL: "personal", "share": self.share}

    @property
    def substeps(self) -> tuple[Substep, ...]:
        return self.step_model, self.step_own

    def step_model(self, steps: LocalSteps, g: list[torch.Tensor], lanes: slice) -> None:
        """Step w by its gradient, and go to u."""
        share, stacks = steps.counters["share"][lanes], [steps.view(slot, lanes) for slot in STACKS]
        for model, v, after, apart, each in zip(*stacks, g, strict=True):
            apart.copy_(v - model)
            after.copy_(model - steps.lr * each)
            model.add_(share.view(-1, *(1 for _ in each.shape[1:])) * apart)
        _exchange_tracked(steps, lanes)

    def step_own(self, steps: LocalSteps, g: list[torch.Tensor], lanes: slice) -> None:
        """Step v by the gradient of u, go to the stepped w, and move the share at the first batch."""
        share, stacks = steps.counters["share"][lanes], [steps.view(slot, lanes) for slot in STACKS]
        slope = share.new_zeros(len(share))
        for model, v, after, apart, each in zip(*stacks, g, strict=True):
            slope += (each * apart).reshape(len(share), -1).sum(1)
            v.sub_(steps.lr * share.view(-1, *(1 for _ in each.shape[1:])) * each)
            model.copy_(after)
        if steps.turn == 0:
            share.sub_(self.share_lr * slope).clamp_(0, 1)
        _exchange_tracked(steps, lanes)


def _exchange_tracked(steps: LocalSteps, lanes: slice) -> None:
    """Exchange the entries that never train, such as running means, of the models and the second models."""
    for model, own in steps.tracked:
        model[lanes], own[lanes] = own[lanes].clone(), model[lanes].clone()
