"""Default random generators seeded for a while, for code that takes no generator."""

# ruff: noqa: NPY002
# Such code draws from NumPy's legacy generator.

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import torch
from torch.utils import deterministic

PRECISIONS = tuple(
    getattr(library, kind)
    for library, kinds in (
        (torch.backends.cuda, ("matmul",)),
        (torch.backends.cudnn, ("conv", "rnn")),
        (torch.backends.mkldnn, ("matmul", "conv", "rnn")),
    )
    for kind in kinds
)
"""Operations of the libraries that may compute float32 with fewer bits; each has a `fp32_precision`."""


def _precision() -> tuple[object, ...]:
    """Return the precision of float32 by torch's older interface, None where it refuses, and by its newer one."""
    older: list[object] = []
    for read in (torch.get_float32_matmul_precision, lambda: torch.backends.cudnn.allow_tf32):
        try:
            older.append(read())
        except RuntimeError:  # set by the newer interface alone
            older.append(None)
    return *older, *(each.fp32_precision for each in PRECISIONS)


def _set_precision(precision: Sequence[Any]) -> None:
    """Set what `_precision` returned."""
    matmul, convolution, *newer = precision
    if matmul is not None:
        torch.set_float32_matmul_precision(matmul)
    if convolution is not None:
        torch.backends.cudnn.allow_tf32 = convolution
    for place, value in zip(PRECISIONS, newer, strict=True):
        place.fp32_precision = value


SETTINGS: Sequence[tuple[Callable[[], Any], Callable[[Any], object]]] = (
    (torch.get_default_dtype, torch.set_default_dtype),
    (torch.get_default_device, lambda device: torch.set_default_device(None if device.type == "cpu" else device)),
    (torch.is_grad_enabled, torch.set_grad_enabled),
    (torch.get_num_threads, torch.set_num_threads),
    (torch.get_deterministic_debug_mode, torch.set_deterministic_debug_mode),
    (lambda: torch.is_autocast_enabled("cpu"), lambda on: torch.set_autocast_enabled("cpu", on)),
    (lambda: torch.is_autocast_enabled("cuda"), lambda on: torch.set_autocast_enabled("cuda", on)),
    (_precision, _set_precision),
    (lambda: torch.backends.cudnn.benchmark, partial(setattr, torch.backends.cudnn, "benchmark")),
    (lambda: torch.backends.cudnn.enabled, partial(setattr, torch.backends.cudnn, "enabled")),
    (lambda: torch.backends.mkldnn.enabled, partial(setattr, torch.backends.mkldnn, "enabled")),
    (
        lambda: deterministic.fill_uninitialized_memory,  # type: ignore[attr-defined]
        partial(setattr, deterministic, "fill_uninitialized_memory"),
    ),
    (np.geterr, lambda handling: np.seterr(**handling)),
)
"""Settings of a process that change results or their speed, each as a function that reads it and one that sets it."""


def full_precision() -> None:
    """Compute float32 with all its bits from now on."""
    _set_precision(("highest", False, *["ieee"] * len(PRECISIONS)))


@contextmanager
def restored() -> Iterator[None]:
    """Restore the `SETTINGS` after the context, whatever ran inside."""
    settings = [(read(), read, write) for read, write in SETTINGS]
    try:
        yield
    finally:
        for value, read, write in settings:
            if read() != value:
                write(value)


@contextmanager
def forked(seed: int, devices: Sequence[torch.device] = ()) -> Iterator[None]:
    """Seed the default generators of torch, NumPy and Python inside the context.

    Afterwards the generators and the `SETTINGS` are as before, whatever ran inside.

    Args:
        seed: number of 63 bits.
        devices: GPUs to seed as well.
    """
    python, numpy = random.getstate(), np.random.get_state()
    with restored(), torch.random.fork_rng(devices=list(devices)):
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


def drawn() -> tuple[object, ...]:
    """Return the state of the default generators, with a GPU's if it is in use; any draw changes it."""
    name, numbers, *rest = np.random.get_state(legacy=True)
    states = [torch.get_rng_state()]
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        states.append(torch.cuda.get_rng_state())
    torches = tuple(each.numpy().tobytes() for each in states)
    return torches, name, np.asarray(numbers).tobytes(), *rest, random.getstate()
