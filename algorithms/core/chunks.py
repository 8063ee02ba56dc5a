"""Chunks of samples for one forward pass each."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import torch
from torch import nn

CHUNK = 1024
"""Largest number of samples in a chunk."""

NUMBERS = 2**24
"""Largest number of values of a chunk, as inputs and as outputs of a layer; two samples always fit, because one alone
has no batch statistics."""


def chunk_size(values: int) -> int:
    """Return the number of samples in a chunk.

    Args:
        values: values of one sample, in the widest layer that it passes.
    """
    return min(CHUNK, max(2, NUMBERS // max(1, values)))


def growth(module: nn.Module, sample: torch.Tensor) -> float:
    """Return the factor by which a sample has more values as the widest output of a layer than as an input, at least 1.

    Args:
        module: model; left unchanged.
        sample: one sample, [*shape]; its values do not matter.
    """
    widest = sample.numel()

    def look(_: nn.Module, __: Any, outputs: Any) -> None:
        nonlocal widest
        each = outputs if isinstance(outputs, tuple) else (outputs,)
        widest = max(widest, *(output.numel() // 2 for output in each if isinstance(output, torch.Tensor)), 0)

    copy = deepcopy(module).cpu().eval()
    for layer in copy.modules():
        layer.register_forward_hook(look)
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        copy(torch.stack([sample, sample]).cpu())
    return widest / max(1, sample.numel())
