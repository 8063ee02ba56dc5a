"""pFedMe: T Dinh, Tran and Nguyen, "Personalized Federated Learning with Moreau Envelopes", 2020."""

from __future__ import annotations

from collections.abc import Sequence
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


def pfedme(
    sample: Sample,
    local: Local,
    server: Server = Assign(),
    *,
    attraction: float = 15.0,
    inner_steps: int = 5,
    outer_lr: float = 0.005,
    weighting: WeightingName = "equal",
) -> Algorithm:
    """Train a model of each client's own near a local one, which follows it; the server averages the local ones.

        theta <- theta - lr (grad F_k(theta; batch) + attraction (theta - w_k))   K = `inner_steps` times
        w_k <- w_k - outer_lr attraction (w_k - theta)   after each batch,   w <- (1 - beta) w + beta mean_k w_k

    Args:
        sample: rule that draws a round's cohort.
        local: content of a client update: its batches, and the rate of theta.
        server: step from the mean to the next global model; the paper's beta is `mix` with that alpha.
        attraction: the paper's lambda, > 0.
        inner_steps: the paper's K, >= 1.
        outer_lr: the paper's eta, > 0.
        weighting: share of a model in the mean: "equal", as in the paper, or "samples".

    Raises:
        InputError: a number is out of range, or `local` is not plain SGD.

    Paper: Algorithm 1.

    Deviations: a client outside the cohort does not train and keeps its last theta; in the paper all clients train in
    each round, and the server averages a sample of them. theta starts at w_t in each client update and goes on from
    batch to batch, as in the authors' code. Batch norm tracks its statistics at theta for both models. The reported
    steps are those of theta.
    """
    require(attraction > 0, "algorithm.attraction", attraction, "> 0", "set algorithm.attraction = 15.0")
    require(inner_steps >= 1, "algorithm.inner_steps", inner_steps, ">= 1", "set algorithm.inner_steps = 5")
    require(outer_lr > 0, "algorithm.outer_lr", outer_lr, "> 0", "set algorithm.outer_lr = 0.005")
    require_defaults(local, "pfedme", "optimizer", "momentum", "proximal")
    own = Envelope(**{**vars(local), "proximal": attraction}, inner_steps=inner_steps, outer_lr=outer_lr)
    return Algorithm(Rounds(sample), own, Sharing(slots={SECOND_MODEL: "personal"}), weighting_of(weighting), server)


@dataclass(frozen=True)
class Envelope(Local):
    """`Local` in which theta is the model and takes each batch several times; w_k stands for the received one."""

    inner_steps: int = 1
    outer_lr: float = 0.0

    @property
    def slots(self) -> tuple[str, ...]:
        return (*super().slots, SECOND_MODEL)

    @property
    def chain(self) -> Chain:
        return replace(super().chain, optimiser=self)

    @property
    def repeats(self) -> int:
        return self.inner_steps

    def step(self, steps: LocalSteps, g: list[torch.Tensor], lanes: slice) -> None:
        """Step theta, and move w_k towards it after the last step of a batch."""
        import torch

        from algorithms.training.chain import RECEIVED

        theta, w = steps.view(None, lanes), steps.view(RECEIVED, lanes)
        torch._foreach_add_(theta, g, alpha=-steps.lr)
        if steps.count(lanes) % self.inner_steps == 0:
            torch._foreach_lerp_(w, theta, self.outer_lr * self.proximal)

    def finish(self, steps: LocalSteps, taken: Sequence[int]) -> None:
        from algorithms.training.chain import RECEIVED

        received, own = steps.stacks(RECEIVED), steps.stacks(SECOND_MODEL)
        for lane, count in enumerate(taken):
            for name, theta in steps.weights.items() if count else ():
                own[name][lane], theta[lane] = theta[lane].clone(), received[name][lane]
            for model, second in steps.tracked if count else ():
                second[lane] = model[lane]
