"""Per-FedAvg: Fallah, Mokhtari and Ozdaglar, "Personalized Federated Learning: A Meta-Learning Approach", 2020."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

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


def per_fedavg(
    participation: Participation,
    local: Local,
    server: Server = Assign(),
    *,
    inner_lr: float = 0.01,
    weighting: WeightingName = "equal",
) -> Algorithm:
    """Run FedAvg for a model that is good after one more step on a client: first-order meta-learning.

        w' <- w - inner_lr grad F_k(w; batch),   w <- w - lr grad F_k(w'; next batch)

    Set `evaluate.finetune` to evaluate the model after its steps on each client.

    Args:
        participation: rule that draws a round's cohort.
        local: content of a client update: plain SGD at the paper's beta.
        server: step from the mean to the next global model.
        inner_lr: the paper's alpha, >= 0; with 0 it is FedAvg on every second batch.
        weighting: share of a model in the mean: "equal", as in the paper, or "samples".

    Raises:
        InputError: `inner_lr` is out of range, or `local` is not plain SGD.

    Paper: Algorithm 1 with the first-order approximation of section 5.

    Deviations: the two gradients are those of neighbouring batches, without those of one sample that batch norm
    refuses. The last one of an odd number is taken twice.
    Fine-tuning takes epochs at the rate `local.lr`, not one step at alpha.
    """
    require_float32("algorithm.inner_lr", inner_lr, ">= 0", 0.01)
    require_defaults(local, "per-fedavg", "optimizer", "momentum", "method")
    return fedavg(participation, replace(local, method=Meta(inner_lr)), server, weighting=weighting)


@dataclass(frozen=True)
class Meta(Method):
    """Steps in pairs, each with a batch of its own; w is in the slot "base" between the two."""

    repeats = 1

    inner_lr: float

    @property
    def substeps(self) -> tuple[Substep, ...]:
        return self.look, self.step

    def plan(self, batches: Sequence[NDArray[np.int64]]) -> list[NDArray[np.int64]]:
        return [*batches, *batches[-1:]] if len(batches) % 2 else list(batches)

    def look(self, steps: LocalSteps, g: list[torch.Tensor], lanes: slice) -> None:
        """Go from w to w', one step ahead."""
        steps.copy("base", None, lanes)
        steps.move(g, lanes, self.inner_lr)

    def step(self, steps: LocalSteps, g: list[torch.Tensor], lanes: slice) -> None:
        """Step w by the gradient at w'."""
        steps.copy(None, "base", lanes)
        steps.move(g, lanes, steps.lr)
