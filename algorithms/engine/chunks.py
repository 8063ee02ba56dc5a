"""Forward passes over many samples: how many pass a model together."""

from __future__ import annotations

from collections.abc import Iterator

import torch

CHUNK = 1024
"""Samples of one forward pass at most."""

NUMBERS = 2**24
"""Numbers of its samples at most, but for two samples: one alone has no batch statistics."""


def chunks(x: torch.Tensor) -> Iterator[slice]:
    """Slices of samples [n, *shape], one after the other: fixed by the shape, for sums and statistics follow them."""
    size = min(CHUNK, max(2, NUMBERS // max(1, x[:1].numel()))) if len(x) else 1
    return (slice(start, start + size) for start in range(0, len(x), size))
