"""Virtual seconds of client updates on the clients' devices."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from algorithms.parts.option import Draft
from algorithms.parts.received import Received


def update_seconds(draft: Draft, received: Received, passed: NDArray[np.float64] | None = None) -> NDArray[np.float64]:
    """Return the virtual seconds of each client update, [m]; 0 without devices.

    Args:
        draft: the round.
        received: client updates.
        passed: samples that pass through training, [m]; by default those that each update used, for each model.
    """
    devices, rows = draft.fleet.census.devices, received.rows
    if devices is None:
        return np.zeros(len(rows))
    if passed is None:
        passed = draft.algorithm.local.method.models * rows.column("used")
    updates = zip(*(each.tolist() for each in (rows.clients, passed, received.down, received.up)), strict=True)
    return np.array([devices.seconds(draft.state.seed, *update) for update in updates])
