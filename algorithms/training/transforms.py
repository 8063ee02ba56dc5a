"""Further transforms of a gradient: clipping, and the direction of Adam."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from algorithms.training.chain import LocalSteps, Tensors


@dataclass(frozen=True)
class GradientClip:
    """Limit on the norm of a batch's gradient, all parameters together: g <- g min(1, norm / |g|).

    Args:
        norm: largest norm, > 0.
    """

    norm: float

    def __call__(self, steps: LocalSteps, g: Tensors, lanes: slice) -> Tensors:
        squares = torch.stack([each.reshape(len(each), -1).square().sum(1) for each in g])
        # torch.nn.utils.clip_grad_norm_ adds the same number, so both clip alike.
        scale = (self.norm / (squares.sum(0).sqrt() + 1e-6)).clamp(max=1)
        return [each * scale.view(-1, *(1 for _ in each.shape[1:])) for each in g]


@dataclass(frozen=True)
class AdamDirection:
    """Direction of Adam: m <- beta1 m + (1 - beta1) g,  v <- beta2 v + (1 - beta2) g^2,  along m' / (sqrt(v') + eps).

    m' and v' are corrected for their start at 0. m, v and the number of steps are slots: "first", "second", "steps".

    Args:
        beta1: decay of the first moment, in [0, 1).
        beta2: decay of the second moment, in [0, 1).
        eps: bound of the step, > 0.
    """

    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8

    def __call__(self, steps: LocalSteps, g: Tensors, lanes: slice) -> Tensors:
        count = steps.count(lanes)
        m, v = steps.view("first", lanes), steps.view("second", lanes)
        torch._foreach_mul_(m, self.beta1)
        torch._foreach_add_(m, g, alpha=1 - self.beta1)
        torch._foreach_mul_(v, self.beta2)
        torch._foreach_addcmul_(v, g, g, value=1 - self.beta2)
        roots = torch._foreach_sqrt(torch._foreach_div(v, 1 - self.beta2**count))
        torch._foreach_add_(roots, self.eps)
        return list(torch._foreach_div(torch._foreach_div(m, 1 - self.beta1**count), roots))
