"""SCAFFOLD: Karimireddy et al., "SCAFFOLD: Stochastic Controlled Averaging for Federated Learning", 2020."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self

from algorithms.core.clients import Census
from algorithms.core.errors import InputError, require
from algorithms.parts.algorithm import Algorithm
from algorithms.parts.schedule import Rounds, Sample
from algorithms.parts.server import Assign, Server
from algorithms.parts.sharing import Sharing
from algorithms.parts.weighting import WeightingName, weighting_of
from algorithms.training.local import Local, require_defaults

if TYPE_CHECKING:
    from algorithms.training.chain import Chain, LocalSteps


def scaffold(
    sample: Sample, local: Local, server: Server = Assign(), *, weighting: WeightingName = "equal"
) -> Algorithm:
    """Run FedAvg with gradients corrected by control variates, against the drift of the clients.

        g <- g - c_k + c
        c_k' = c_k - c + (w_t - w_k) / (steps lr),   w <- mean_k w_k,   c <- c + m / K mean_k (c_k' - c_k)

    Args:
        sample: rule that draws a round's cohort.
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
    require_defaults(local, "scaffold", "momentum", "optimizer", "lr_schedule")
    require(sample.active == 1, "algorithm.active", sample.active, "1.0 for scaffold (m is fixed)", "leave it out")
    fixed = sample.by != "poisson"
    require(fixed, "algorithm.sampling", sample.by, '"uniform" for scaffold (m is fixed)', "leave it out")
    late = sample.reporting.late
    require(late == "drop", "algorithm.late", late, '"drop" for scaffold (c moves by one cohort)', "leave it out")
    sharing = Sharing(slots={"control": "personal", "common_control": "shared"})
    return Algorithm(Rounds(sample), Controlled(**vars(local), sample=sample), sharing, weighting_of(weighting), server)


@dataclass(frozen=True)
class Controlled(Local):
    """`Local` with gradients corrected by control variates: c_k in the slot "control", c in "common_control".

    Args:
        sample: rule that draws a round's cohort.
        share: m / K, set by `fitted`; in virtual time m are those that report, and `attended` sets it.
    """

    sample: Sample = Sample()
    share: float = 1.0

    @property
    def slots(self) -> tuple[str, ...]:
        return (*super().slots, "control", "common_control")

    def fitted(self, census: Census) -> Self:
        if census.joins is not None:
            raise InputError("algorithm.joins with scaffold: must be left out, because m / K must not vary; remove it")
        clients = len(census.clients)
        return replace(super().fitted(census), share=self.sample.size(clients) / clients)

    def attended(self, census: Census, clients: int) -> Self:
        return replace(self, share=clients / len(census.clients))

    @property
    def chain(self) -> Chain:
        from algorithms.training.chain import AffineTerm

        plain = super().chain
        # Terms of a local step: g <- g - c_k + c.
        correction = AffineTerm(b=-1.0, v="control"), AffineTerm(b=1.0, v="common_control")
        return replace(plain, terms=(*correction, *plain.terms), keeps_received=True)

    def finish(self, steps: LocalSteps, taken: Sequence[int]) -> None:
        import torch

        from algorithms.training.chain import RECEIVED

        received, controls, commons = (steps.stacks(slot) for slot in (RECEIVED, "control", "common_control"))
        with torch.no_grad():
            for lane, count in enumerate(taken):
                for name, w in steps.weights.items() if count else ():
                    own, common = controls[name][lane], commons[name][lane]
                    change = (received[name][lane] - w[lane]) / (count * steps.lr) - common
                    own += change
                    common += self.share * change
