"""pFedMe: T Dinh, Tran and Nguyen, "Personalized Federated Learning with Moreau Envelopes", 2020."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from algorithms.core.entries import SECOND_MODEL
from algorithms.core.errors import require
from algorithms.fedavg import fedavg
from algorithms.parts.algorithm import Algorithm
from algorithms.parts.arguments import require_float32
from algorithms.parts.schedule import Participation
from algorithms.parts.server import Assign, Server
from algorithms.parts.weighting import WeightingName
from algorithms.training.local import Local, require_defaults
from algorithms.training.local_values import FLOAT32_MAX
from algorithms.training.method import Method
from algorithms.training.terms import RECEIVED, AffineTerm, pull

if TYPE_CHECKING:
    import torch

    from algorithms.training.steps import LocalSteps, Substep


def pfedme(
    participation: Participation,
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
        participation: rule that draws a round's cohort.
        local: content of a client update: its batches, and the rate of theta.
        server: step from the mean to the next global model; the paper's beta is `mix` with that alpha.
        attraction: the paper's lambda, > 0.
        inner_steps: the paper's K, in [1, 1000000].
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
    require_float32("algorithm.attraction", attraction, "> 0", 15.0)
    few = 1 <= inner_steps <= 10**6
    require(few, "algorithm.inner_steps", inner_steps, "in [1, 1000000]", "set algorithm.inner_steps = 5")
    fits, allowed = 0 < outer_lr <= FLOAT32_MAX / attraction, "> 0, and a float32 number times algorithm.attraction"
    require(fits, "algorithm.outer_lr", outer_lr, allowed, "set algorithm.outer_lr = 0.005")
    require_defaults(local, "pfedme", "optimizer", "momentum", "method")
    both = replace(local, method=Envelope(attraction, inner_steps, outer_lr))
    return fedavg(participation, both, server, weighting=weighting)


@dataclass(frozen=True)
class Envelope(Method):
    """Steps of theta, which is the model, and then a step of w_k, which stands for the received one."""

    personal = (SECOND_MODEL,)

    attraction: float
    inner_steps: int
    outer_lr: float

    @property
    def terms(self) -> tuple[AffineTerm, ...]:
        return (pull(self.attraction),)

    @property
    def substeps(self) -> tuple[Substep, ...]:
        return (*[self.inner] * (self.inner_steps - 1), self.last)

    def inner(self, steps: LocalSteps, g: list[torch.Tensor], lanes: slice) -> None:
        """Step theta."""
        steps.move(g, lanes, steps.lr)

    def last(self, steps: LocalSteps, g: list[torch.Tensor], lanes: slice) -> None:
        """Step theta a last time on the batch, and move w_k towards it."""
        import torch

        self.inner(steps, g, lanes)
        torch._foreach_lerp_(steps.view(RECEIVED, lanes), steps.view(None, lanes), self.outer_lr * self.attraction)

    def finish(self, steps: LocalSteps, lane: int, count: int) -> None:
        for theta, w, own in steps.values(lane, RECEIVED, SECOND_MODEL):
            own.copy_(theta)
            theta.copy_(w)
        for model, second in steps.tracked:
            second[lane] = model[lane]
