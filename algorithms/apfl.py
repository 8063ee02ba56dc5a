"""APFL: Deng, Kamani and Mahdavi, "Adaptive Personalized Federated Learning", 2020."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from algorithms.core.entries import SECOND_MODEL
from algorithms.core.errors import require
from algorithms.parts.algorithm import Algorithm
from algorithms.parts.schedule import Rounds, Sample
from algorithms.parts.server import Assign, Server
from algorithms.parts.sharing import Sharing
from algorithms.parts.weighting import WeightingName, weighting_of
from algorithms.training.local import Local, require_defaults

if TYPE_CHECKING:
    import torch

    from algorithms.training.chain import Chain, LocalSteps


def apfl(
    sample: Sample,
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
        sample: rule that draws a round's cohort.
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
    require(share_lr >= 0, "algorithm.share_lr", share_lr, ">= 0", "set algorithm.share_lr = 0.1")
    require_defaults(local, "apfl", "optimizer", "momentum")
    mixed = Mixed(**vars(local), share=float(share), share_lr=share_lr)
    sharing = Sharing(slots={SECOND_MODEL: "personal", **mixed.numbers})
    return Algorithm(Rounds(sample), mixed, sharing, weighting_of(weighting), server)


@dataclass(frozen=True)
class Mixed(Local):
    """`Local` that takes each batch twice: for w, and for the mixture u of v and w.

    Between the two, u is the model, the slot "next" holds the stepped w, and "apart" v - w.
    """

    share: float = 1.0
    share_lr: float = 0.0

    @property
    def slots(self) -> tuple[str, ...]:
        return (*super().slots, SECOND_MODEL, "share")

    @property
    def numbers(self) -> dict[str, float]:
        return {"share": self.share}

    @property
    def chain(self) -> Chain:
        return replace(super().chain, optimiser=self)

    @property
    def repeats(self) -> int:
        return 2

    def step(self, steps: LocalSteps, g: list[torch.Tensor], lanes: slice) -> None:
        """Take the gradient of w and go to u, or that of u and go to w."""
        share, count = steps.counters["share"][lanes], steps.count(lanes)
        slope = share.new_zeros(len(share))
        stacks = [steps.view(slot, lanes) for slot in (None, SECOND_MODEL, "next", "apart")]
        for model, v, after, apart, each in zip(*stacks, g, strict=True):
            a = share.view(-1, *(1 for _ in each.shape[1:]))
            if count % 2:  # the gradient is that of w
                apart.copy_(v - model)
                after.copy_(model - steps.lr * each)
                model.add_(a * apart)
            else:
                slope += (each * apart).reshape(len(share), -1).sum(1)
                v.sub_(steps.lr * a * each)
                model.copy_(after)
        if count == 2:
            share.sub_(self.share_lr * slope).clamp_(0, 1)
        for model, own in steps.tracked:
            model[lanes], own[lanes] = own[lanes].clone(), model[lanes].clone()
