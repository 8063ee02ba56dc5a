"""MOON: Li, He and Song, "Model-Contrastive Federated Learning", 2021."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf
from typing import TYPE_CHECKING

from algorithms.core.errors import require
from algorithms.fedavg import fedavg
from algorithms.parts.algorithm import Algorithm
from algorithms.parts.schedule import Participation
from algorithms.parts.server import Assign, Server
from algorithms.parts.weighting import WeightingName
from algorithms.training.local import Local, require_defaults
from algorithms.training.method import Method

if TYPE_CHECKING:
    import torch
    from torch import nn

    from algorithms.training.contrast import Contrast
    from algorithms.training.steps import LocalSteps


def moon(
    participation: Participation,
    local: Local,
    server: Server = Assign(),
    *,
    mu: float = 1.0,
    temperature: float = 0.5,
    weighting: WeightingName = "samples",
) -> Algorithm:
    """Run FedAvg with features held near the global model's and away from those of the client's previous model.

        min_w F_k(w) + mu mean_x l_con(x),   started from w_t
        l_con = -log(exp(sim(z, z_t) / T) / (exp(sim(z, z_t) / T) + exp(sim(z, z_p) / T)))

    z, z_t and z_p are the features of a sample under w, the received model, and the client's result in its last round;
    sim is the cosine. Features are the input of the model's head; `model.head` names it.

    Args:
        participation: rule that draws a round's cohort.
        local: content of a client update.
        server: step from the mean to the next global model.
        mu: factor of the contrastive term, >= 0; with 0 it is FedAvg.
        temperature: T, > 0.
        weighting: share of a model in the mean: "samples", as in the paper, or "equal".

    Raises:
        InputError: a number is out of range, or `local` is compiled or has a client update of the user's own.

    Paper: section 3, Algorithm 1; mu is 0.1 to 10, T 0.5.

    Deviations: no projection head is added to the model; a model may have one before its head. A client without a
    previous model has no contrastive term, as in the authors' code; with the received model in its place, the term
    would have no gradient. The received and the previous model normalise by the statistics of the batch, like the
    trained one, and drop the same units. The training loss includes the term.
    """
    require(0 <= mu < inf, "algorithm.mu", mu, "a number >= 0", "set algorithm.mu = 1.0")
    name = "algorithm.temperature"
    require(0 < temperature < inf, name, temperature, "a number > 0", f"set {name} = 0.5")
    require_defaults(local, "moon", "method")
    require(not local.compute.compile, "local.compile", True, "false for moon", "leave it out")
    return fedavg(participation, replace(local, method=Contrasted(mu, temperature)), server, weighting=weighting)


@dataclass(frozen=True)
class Contrasted(Method):
    """Contrastive term of the loss; the client's previous model is the slot "previous"."""

    personal = ("previous",)

    mu: float
    temperature: float

    def check_model(self, module: nn.Module, sample: torch.Tensor) -> None:
        from algorithms.training.contrast import check_head

        check_head(module, sample)

    def loss_term(self, module: nn.Module, steps: LocalSteps) -> Contrast:
        from algorithms.training.contrast import Contrast

        return Contrast(self.mu, self.temperature, "previous", module, steps)

    def finish(self, steps: LocalSteps, lane: int, count: int) -> None:
        for w, previous in steps.values(lane, "previous"):
            previous.copy_(w)
