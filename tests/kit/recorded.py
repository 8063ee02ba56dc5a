"""A stand-in for CUDA graphs on a machine without a GPU."""

from collections.abc import Sequence
from typing import Any

import torch

from algorithms.training.work import Step


class Recorded:
    """The first step again and again, in the memory that it had; in place of `Captured`."""

    pool = None
    taken = 0
    """Steps that all of them have taken."""

    def __init__(self, step: Step, inputs: Sequence[torch.Tensor], changed: Sequence[torch.Tensor], *_: Any) -> None:
        self._step, self._inputs = step, [each.clone() for each in inputs]
        before = [each.clone() for each in changed]
        step(*self._inputs)
        for each, value in zip(changed, before, strict=True):
            each.detach().copy_(value)

    def __call__(self, inputs: Sequence[torch.Tensor]) -> torch.Tensor:
        Recorded.taken += 1
        for own, given in zip(self._inputs, inputs, strict=True):
            own.copy_(given)
        return self._step(*self._inputs).clone()
