"""Default random generators seeded for a while, for code that takes no generator."""

# ruff: noqa: NPY002
# Such code draws from NumPy's legacy generator.

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

SETTINGS: Sequence[tuple[Callable[[], Any], Callable[[Any], object]]] = (
    (torch.get_default_dtype, torch.set_default_dtype),
    (torch.get_default_device, lambda device: torch.set_default_device(None if device.type == "cpu" else device)),
    (torch.is_grad_enabled, torch.set_grad_enabled),
    (torch.get_num_threads, torch.set_num_threads),
    (torch.are_deterministic_algorithms_enabled, torch.use_deterministic_algorithms),
    (np.geterr, lambda handling: np.seterr(**handling)),
)
"""Settings of a process that change results, each as a function that reads it and one that sets it."""


@contextmanager
def forked(seed: int, devices: Sequence[torch.device] = ()) -> Iterator[None]:
    """Seed the default generators of torch, NumPy and Python inside the context.

    Afterwards the generators and the `SETTINGS` are as before, whatever ran inside.

    Args:
        seed: number of 63 bits.
        devices: GPUs to seed as well.
    """
    python, numpy = random.getstate(), np.random.get_state()
    settings = [(read(), read, write) for read, write in SETTINGS]
    with torch.random.fork_rng(devices=list(devices)):
        # torch.manual_seed would also reseed GPUs that nobody restores.
        torch.default_generator.manual_seed(seed)
        for device in devices:
            with torch.cuda.device(device):
                torch.cuda.manual_seed(seed)
        np.random.seed([seed % 2**32, seed // 2**32])
        random.seed(seed)
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(numpy)
            for value, read, write in settings:
                if read() != value:
                    write(value)


def drawn() -> tuple[object, ...]:
    """Return the state of the default generators; any draw changes it."""
    name, numbers, *rest = np.random.get_state(legacy=True)
    return torch.get_rng_state().numpy().tobytes(), name, np.asarray(numbers).tobytes(), *rest, random.getstate()
