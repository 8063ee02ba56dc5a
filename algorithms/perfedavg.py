"""Per-FedAvg: Fallah, Mokhtari and Ozdaglar, "Personalized Federated Learning: A Meta-Learning Approach", 2020."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from algorithms.core.errors import require
from algorithms.parts.algorithm import Algorithm
from algorithms.parts.schedule import Rounds, Sample
from algorithms.parts.server import Assign, Server
from algorithms.parts.weighting import WeightingName, weighting_of
from algorithms.training.local import Local, require_defaults

if TYPE_CHECKING:
    import torch

    from algorithms.training.chain import Chain, LocalSteps


def per_fedavg(
    sample: Sample,
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
        sample: rule that draws a round's cohort.
        local: content of a client update: plain SGD at the paper's beta.
        server: step from the mean to the next global model.
        inner_lr: the paper's alpha, >= 0; with 0 it is FedAvg on every second batch.
        weighting: share of a model in the mean: "equal", as in the paper, or "samples".

    Raises:
        InputError: `inner_lr` is negative, or `local` is not plain SGD.

    Paper: Algorithm 1 with the first-order approximation of section 5.

    Deviations: the two gradients are those of neighbouring batches; the last one of an odd number is taken twice. If
    batch norm refuses the second batch because it has one sample, the first step is undone.
    Fine-tuning takes epochs at the rate `local.lr`, not one step at alpha.
    """
    require(inner_lr >= 0, "algorithm.inner_lr", inner_lr, ">= 0", "set algorithm.inner_lr = 0.01")
    require_defaults(local, "per-fedavg", "optimizer", "momentum")
    meta = Meta(**vars(local), inner_lr=inner_lr)
    return Algorithm(Rounds(sample), meta, weighting=weighting_of(weighting), server=server)


@dataclass(frozen=True)
class Meta(Local):
    """`Local` whose steps come in pairs; w is in the slot "base" between the two."""

    inner_lr: float = 0.0

    @property
    def chain(self) -> Chain:
        return replace(super().chain, optimiser=self)

    def plan(
        self, samples: int, round_number: int, updates: int, draw: Callable[[int], np.random.Generator]
    ) -> list[NDArray[np.int64]]:
        plain = super().plan(samples, round_number, updates, draw)
        return [*plain, *plain[-1:]] if len(plain) % 2 else plain

    def step(self, steps: LocalSteps, g: list[torch.Tensor], lanes: slice) -> None:
        """Look one step ahead, or take the step from where the look began."""
        import torch

        w, base = steps.view(None, lanes), steps.view("base", lanes)
        looks = steps.count(lanes) % 2 == 1
        torch._foreach_copy_(*((base, w) if looks else (w, base)))
        torch._foreach_add_(w, g, alpha=-(self.inner_lr if looks else steps.lr))

    def finish(self, steps: LocalSteps, taken: Sequence[int]) -> None:
        # Batch norm refuses a batch of one, so a look may lack its step.
        for lane, count in enumerate(taken):
            for name, w in steps.weights.items() if count % 2 else ():
                w[lane] = steps.stacks("base")[name][lane]
