"""Default random generators that are a key's for a while: for modules that draw where no generator can be given."""

# ruff: noqa: NPY002
# NumPy's legacy generator is the one that such modules draw from.

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import torch


@contextmanager
def forked(seed: int, devices: Sequence[torch.device] = ()) -> Iterator[None]:
    """Within, torch's, NumPy's and Python's own default generators begin at a seed; then they go on as before.

    Args:
        seed: of 63 bits.
        devices: the GPUs whose generators are meant, too.
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
    """How far the default generators have come: another value after something was drawn from one of them."""
    name, numbers, *rest = np.random.get_state(legacy=True)
    return torch.get_rng_state().numpy().tobytes(), name, np.asarray(numbers).tobytes(), *rest, random.getstate()
