"""Threads and deterministic settings of a process, and the fingerprint of its results."""

from __future__ import annotations

import ctypes
import platform
import time
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from threadpoolctl import threadpool_limits
from torch.utils import deterministic

from algorithms.training.forked import full_precision, restored
from raysim.common.errors import InputError

LOADED_SECONDS = min(time.process_time(), 10.0)
"""CPU seconds until this process had imported torch; every process that imports it needs about as many.

A process that computed for long before it imported this module would count too much, so there is a limit.
"""

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # of glibc's malloc.h


@contextmanager
def settled(threads: int) -> Iterator[None]:
    """Compute deterministically in the context, and restore the process's settings after it.

    Contexts of several threads must not overlap: the settings are those of the process.
    """
    with threadpool_limits(1, user_api="blas"), restored(), torch.inference_mode(mode=False):
        _settle_torch(threads)
        yield


def settle(threads: int) -> None:
    """Compute deterministically from now on, as a new process does.

    The number of threads is configuration, because threads cut sums. NumPy's linear algebra takes one thread: with
    several it may hang, because Ray forks while it starts, and OpenBLAS ends its threads at a fork.
    """
    threadpool_limits(1, user_api="blas")
    _settle_torch(threads)


def _settle_torch(threads: int) -> None:
    torch.set_num_threads(threads)
    # use_deterministic_algorithms(True) does the same, but imports torch's compiler, which takes seconds.
    torch.set_deterministic_debug_mode("error")
    # No result reads uninitialised memory, and filling it would cost every allocation.
    deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    torch.backends.cudnn.benchmark = False
    full_precision()
    torch.backends.cudnn.enabled = True
    torch.backends.mkldnn.enabled = True  # type: ignore[assignment]  # mypy sees the property and not its value
    # A notebook may have changed what every actor begins with.
    torch.set_default_dtype(torch.float32)
    torch.set_default_device(None)
    torch.set_grad_enabled(True)
    torch.set_autocast_enabled("cpu", False)
    torch.set_autocast_enabled("cuda", False)


def keep_memory() -> None:
    """Keep freed memory in this process: client updates free and ask for the same megabytes again and again.

    By default glibc returns them to the system, and each first touch of a page then costs a fault. Other C libraries
    have no such setting, and nothing happens.
    """
    if platform.libc_ver()[0] == "glibc":
        libc = ctypes.CDLL(None)
        libc.mallopt(_M_MMAP_THRESHOLD, 2**30)
        libc.mallopt(_M_TRIM_THRESHOLD, 2**31 - 1)


def fingerprint(device: str = "cpu") -> dict[str, str]:
    """Return the properties of this process that results depend on; equal fingerprints give equal bytes.

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
            "fleet.gpus_per_actor: must be 0 if torch sees no GPU (Ray does; is torch built for CPUs?); set "
            "fleet.gpus_per_actor = 0"
        )
    return torch.cuda.get_device_name()
