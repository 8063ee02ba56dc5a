"""GPUs of this machine, found in moments; torch and Ray, which take seconds, are not imported."""

from __future__ import annotations

import os
import shutil
import sys
from glob import glob

from raysim.common.errors import InputError
from raysim.common.surface import given

DEVICES = ("/dev/nvidia[0-9]*", "/proc/driver/nvidia/gpus/*", "/dev/kfd", "/dev/dxg")
"""Files of GPUs that torch can use: NVIDIA's, AMD's and those of Windows under Linux."""

MASKS = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")
"""Variables of the environment that hide GPUs from a process; empty for all."""


def has_gpu() -> bool:
    """Return whether this machine may have a GPU that torch can use."""
    if any(os.environ.get(mask) in ("", "-1") for mask in MASKS):
        return False
    return any(map(glob, DEVICES)) or shutil.which("nvidia-smi") is not None


def require_gpu(gpus: float | str, address: str | None) -> None:
    """Refuse actors with GPUs on a machine without any, before Ray starts there.

    Raises:
        InputError: the actors need GPUs, and start on this machine, which has none.
    """
    ray = sys.modules.get("ray")
    is_elsewhere = (address or os.environ.get("RAY_ADDRESS")) not in (None, "", "local")
    # A Ray that runs already knows its own resources.
    if not gpus or is_elsewhere or (ray is not None and ray.is_initialized()) or has_gpu():
        return
    shown = f'"{gpus}"' if isinstance(gpus, str) else f"{gpus:g}"
    raise InputError(
        f"fleet.gpus_per_actor = {shown}: must be 0, because there is no GPU on this machine; set "
        f"fleet.gpus_per_actor = 0, or name a Ray cluster that has GPUs by {given('address', 'HOST:PORT')}"
    )
