"""Algorithms in virtual time: which rounds need the clock of the devices, and what it contradicts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from algorithms.core.devices import Devices
from algorithms.core.errors import InputError
from algorithms.parts.conflicts import check_conflicts
from algorithms.parts.settings import clock_of

if TYPE_CHECKING:
    from algorithms.parts.algorithm import Algorithm


def on_clock(algorithm: Algorithm, devices: Devices | None) -> bool:
    """Return whether the devices decide who takes part in a round."""
    return devices is not None and bool(clock_of(algorithm, devices))


def check_clock(algorithm: Algorithm, devices: Devices | None) -> None:
    """Refuse an algorithm that contradicts the clock of the devices, in any phase.

    Raises:
        InputError: a setting needs devices and there are none, or a part does not go with virtual time.
    """
    for phase in algorithm.phases:
        if devices is None and (key := clock_of(phase)):
            raise InputError(
                f"{key} without [devices]: must have devices, which set the clock; add the table [devices]"
            )
        check_conflicts(phase, devices)
