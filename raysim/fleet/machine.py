"""What a process computes with: its threads, its deterministic settings, and the fingerprint of the result."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch


@contextmanager
def settled(threads: int) -> Iterator[None]:
    """Compute deterministically on so many threads, and leave the process as it was found."""
    before = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    settle(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before[0])
        torch.use_deterministic_algorithms(before[1])


def settle(threads: int) -> None:
    """Compute deterministically on so many threads: sums are cut by threads, so their number is configuration."""
    torch.set_num_threads(threads)
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.benchmark = False
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cuda.matmul.allow_tf32 = False


def fingerprint(device: str = "cpu") -> dict[str, str]:
    """What the bytes of a result depend on beside the configuration; equal fingerprints give equal bytes."""
    return {
        "processor": platform.machine(),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "blas": "mkl" if torch.backends.mkl.is_available() else "other",  # type: ignore[no-untyped-call]
        "torch": torch.__version__,
        "numpy": np.__version__,
        "gpu": torch.cuda.get_device_name() if device != "cpu" else "none",
    }
