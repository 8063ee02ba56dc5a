"""Chunks of samples for one forward pass each."""

from __future__ import annotations

from collections.abc import Iterator

import torch

CHUNK = 1024
"""Largest number of samples in a chunk."""

NUMBERS = 2**24
"""Largest number of values in a chunk; two samples always fit, because one alone has no batch statistics."""


def chunk_size(values: int) -> int:
    """Return the number of samples in a chunk.

    Args:
        values: values of one sample.
    """
    return min(CHUNK, max(2, NUMBERS // max(1, values)))


def chunks(x: torch.Tensor) -> Iterator[slice]:
    """Return slices of samples [n, *shape]; only the shape sets them, because sums and statistics depend on them."""
    size = chunk_size(x[:1].numel()) if len(x) else 1
    return (slice(start, start + size) for start in range(0, len(x), size))
