"""Default random generators seeded for a while, for modules that take no generator."""

# ruff: noqa: NPY002
# Such modules draw from NumPy's legacy generator.

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import torch


@contextmanager
def forked(seed: int, devices: Sequence[torch.device] = ()) -> Iterator[None]:
    """Seed the default generators of torch, NumPy and Python inside the context, and restore them afterwards.

    Args:
        seed: number of 63 bits.
        devices: GPUs to seed as well.
    """
    python, numpy = random.getstate(), np.random.get_state()
    with torch.random.fork_rng(devices=list(devices)):
        torch.manual_seed(seed)
        np.random.seed([seed % 2**32, seed // 2**32])
        random.seed(seed)
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(numpy)


def drawn() -> tuple[object, ...]:
    """Return the state of the default generators; any draw changes it."""
    name, numbers, *rest = np.random.get_state(legacy=True)
    return torch.get_rng_state().numpy().tobytes(), name, np.asarray(numbers).tobytes(), *rest, random.getstate()
