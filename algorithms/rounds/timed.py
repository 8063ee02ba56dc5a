"""Algorithms in virtual time: which rounds need the devices, and what these contradict."""

from __future__ import annotations

from algorithms.core.devices import Devices
from algorithms.core.errors import InputError
from algorithms.parts.algorithm import Algorithm
from algorithms.parts.conflicts import check_conflicts
from algorithms.parts.settings import virtual_time_of


def in_virtual_time(algorithm: Algorithm, devices: Devices | None) -> bool:
    """Return whether the devices decide who takes part in a round."""
    return devices is not None and bool(virtual_time_of(algorithm, devices))


def check_virtual_time(algorithm: Algorithm, devices: Devices | None) -> None:
    """Refuse an algorithm that contradicts the virtual time of the devices, in any phase.

    Raises:
        InputError: a setting needs devices and there are none, or a part does not go with virtual time.
    """
    for phase in algorithm.phases:
        if devices is None and (key := virtual_time_of(phase)):
            raise InputError(
                f"{key} without [devices]: must have devices, which set the virtual time; add the table [devices]"
            )
        check_conflicts(phase, devices)
