"""FedRep: Collins et al., "Exploiting Shared Representations for Personalized Federated Learning", 2021."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from algorithms.core.errors import require
from algorithms.fedper import fedper
from algorithms.parts.algorithm import Algorithm
from algorithms.parts.schedule import Participation
from algorithms.parts.server import Assign, Server
from algorithms.parts.weighting import WeightingName
from algorithms.training.local import Local, require_defaults
from algorithms.training.method import Method

if TYPE_CHECKING:
    from algorithms.training.work import Trainer, Work


def fedrep(
    participation: Participation,
    local: Local,
    server: Server = Assign(),
    *,
    head_epochs: int = 10,
    weighting: WeightingName = "equal",
    newcomer: Literal["initial", "average"] = "initial",
) -> Algorithm:
    """Run FedAvg on the body; a client update first trains the client's own head, then the body under it.

        w_k <- w_k - lr grad_H F_k(w_B, w_k)   for `head_epochs` epochs
        w_(B,k) <- w_B - lr grad_B F_k(w_B, w_k)   for `local.epochs` epochs,   w_B <- 1/m sum_k w_(B,k)

    Args:
        participation: rule that draws a round's cohort.
        local: content of a client update; its epochs are those of the body.
        server: step from the mean to the next global model.
        head_epochs: epochs of the head before those of the body, >= 1.
        weighting: share of a model in the mean: "equal", as in the paper, or "samples".
        newcomer: head of a client without its own; see `Sharing`.

    Raises:
        InputError: `local` has no epochs, or trains a part of the model; or the model is its head alone.

    Paper: Algorithm 1; ten epochs of the head as in section 5.

    Deviations: the body trains for `local.epochs` epochs; in Algorithm 1 it takes one gradient step. The optimiser and
    `local.lr_schedule` start anew between the two. The reported loss is that of the body's steps.
    """
    for name in ("steps", "batches"):
        value, allowed = getattr(local, name), "left out with fedrep, whose client updates have epochs"
        require(value is None, f"local.{name}", value, allowed, "set local.epochs instead")
    require(head_epochs >= 1, "algorithm.head_epochs", head_epochs, ">= 1", "use fedper to train both together")
    require_defaults(local, "fedrep", "part", "method")
    both = replace(local, epochs=(local.epochs or 0) + head_epochs, method=HeadFirst(head_epochs))
    return fedper(participation, both, server, weighting=weighting, newcomer=newcomer)


@dataclass(frozen=True)
class HeadFirst(Method):
    """Client update whose first epochs train the head alone, and its others the body."""

    head_epochs: int

    def train(self, local: Local, trainer: Trainer, works: Sequence[Work], lr: float) -> NDArray[np.float64]:
        # Each epoch has equally many batches.
        parts = [work.split(len(work.batches) * self.head_epochs // (local.epochs or 1)) for work in works]
        trainer.train(replace(local, part="head"), [head for head, _ in parts], lr)
        return trainer.train(replace(local, part="body"), [body for _, body in parts], lr)
