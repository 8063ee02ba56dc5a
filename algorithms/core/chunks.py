"""Chunks of samples for one forward pass each."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import torch
from torch import nn

CHUNK = 1024
"""Largest number of samples in a chunk."""

NUMBERS = 2**22
"""Largest number of values of a chunk, as inputs and as outputs of a layer: 16 MiB in float32. Wider chunks take more
time on a CPU, because they leave its cache, and more memory. Two samples always fit, because one alone has no batch
statistics."""

BATCH_NUMBERS = 2**24
"""Largest number of values of a chunk's inputs where its samples are one batch, whose statistics count."""


def chunk_size(values: int, most: int = NUMBERS) -> int:
    """Return the number of samples in a chunk.

    Args:
        values: values of one sample, in the widest layer that it passes.
        most: largest number of values of a chunk.
    """
    return min(CHUNK, max(2, most // max(1, values)))


def chunks(x: torch.Tensor, growth: float = 1.0, most: int = NUMBERS) -> Iterator[slice]:
    """Return slices of samples [n, *shape]; only the shape sets them, because sums and statistics depend on them.

    Args:
        x: samples.
        growth: values of a sample in the widest layer, for each of its own.
        most: largest number of values of a chunk.
    """
    size = chunk_size(int(x[:1].numel() * growth), most) if len(x) else 1
    return (slice(start, start + size) for start in range(0, len(x), size))


def growth_of(module: nn.Module, sample: torch.Tensor) -> float:
    """Return the factor by which a sample has more values as the widest output of a layer than as an input, at least 1.

    Args:
        module: model; left unchanged.
        sample: one sample, [*shape]; its values do not matter.
    """
    return max(1.0, max(outputs_of(module, sample), default=0) / max(1, sample.numel()))


def outputs_of(module: nn.Module, sample: torch.Tensor, *, leaves: bool = False) -> list[int]:
    """Return the number of values that each layer has as outputs for one sample.

    Args:
        module: model; left unchanged.
        sample: one sample, [*shape]; its values do not matter.
        leaves: whether to leave out layers that consist of layers.
    """
    values: list[int] = []

    def look(_: nn.Module, __: Any, outputs: Any) -> None:
        each = outputs if isinstance(outputs, tuple) else (outputs,)
        values.append(sum(output.numel() for output in each if isinstance(output, torch.Tensor)))

    # Layers may change their buffers, and draw.
    copy = deepcopy(module).cpu().eval()
    for layer in copy.modules():
        if not (leaves and any(layer.children())):
            layer.register_forward_hook(look)
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        copy(torch.stack([sample] * 2).cpu())
        two = values.copy()
        values.clear()
        copy(torch.stack([sample] * 3).cpu())
    # A weight that a layer computes does not grow with the samples: it is no output of theirs.
    return [more - less for less, more in zip(two, values, strict=False)]
