"""The option `devices`: virtual seconds of rounds whose clients are always available."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from algorithms.parts.option import Draft, Option, Received

if TYPE_CHECKING:
    from algorithms.core.state import State


@dataclass(frozen=True)
class DeviceSeconds(Option):
    """Virtual seconds of a round: those of its slowest client update. See `Devices.seconds`."""

    name: ClassVar[str] = "devices"

    def publish(self, draft: Draft, received: Received, state: State) -> State:
        devices, rows = draft.fleet.census.devices, received.rows
        if devices is None:
            return state
        passed = draft.algorithm.local.method.models * rows.column("used")
        columns = rows.clients, passed, received.down, received.up
        updates = zip(*(column.tolist() for column in columns), strict=True)
        return state.measuring({"simulated_seconds": devices.round(state.seed, updates)})
