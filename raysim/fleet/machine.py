"""What a process computes with: its threads, its deterministic settings, and the fingerprint of the result."""

from __future__ import annotations

import ctypes
import platform
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch.utils import deterministic

from raysim.common.errors import InputError

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # of glibc's malloc.h


@contextmanager
def settled(threads: int) -> Iterator[None]:
    """Compute deterministically on so many threads, and leave the process as it was found."""
    before = torch.get_num_threads(), torch.get_deterministic_debug_mode(), deterministic.fill_uninitialized_memory  # type: ignore[attr-defined]
    settle(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before[0])
        torch.set_deterministic_debug_mode(before[1])
        deterministic.fill_uninitialized_memory = before[2]  # type: ignore[attr-defined]


def settle(threads: int) -> None:
    """Compute deterministically on so many threads: sums are cut by threads, so their number is configuration."""
    torch.set_num_threads(threads)
    # The same as use_deterministic_algorithms(True), which would import torch's compiler, for seconds.
    torch.set_deterministic_debug_mode("error")
    # No result here reads memory that nothing was written to, and filling it costs every allocation.
    deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    torch.backends.cudnn.benchmark = False
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cuda.matmul.allow_tf32 = False


def keep_memory() -> None:
    """Let this process keep the memory that it frees: a visit frees and asks for the same megabytes all the time.

    Otherwise glibc gives them back to the system each time, and every first touch of a page costs a fault. Elsewhere
    nothing happens.
    """
    if platform.libc_ver()[0] == "glibc":
        libc = ctypes.CDLL(None)
        libc.mallopt(_M_MMAP_THRESHOLD, 2**30)
        libc.mallopt(_M_TRIM_THRESHOLD, 2**31 - 1)


def fingerprint(device: str = "cpu") -> dict[str, str]:
    """What the bytes of a result depend on beside the configuration; equal fingerprints give equal bytes.

    Raises:
        InputError: there is no such device.
    """
    return {
        "processor": platform.machine(),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "blas": "mkl" if torch.backends.mkl.is_available() else "other",  # type: ignore[no-untyped-call]
        "torch": torch.__version__,
        "numpy": np.__version__,
        "gpu": _gpu() if device != "cpu" else "none",
    }


def _gpu() -> str:
    if not torch.cuda.is_available():
        raise InputError(
            "fleet.gpus_per_actor: must be 0 where torch sees no GPU (Ray does; is torch built for CPUs?); set "
            "fleet.gpus_per_actor = 0"
        )
    return torch.cuda.get_device_name()
