"""Windows: the latest values of each client, as plain arrays for the memory of a rule or a measure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Windows: TypeAlias = Mapping[str, NDArray[np.float64]]
"""`clients` [k], ascending, and `values` [k, width], the newest last; NaN for values that a client lacks."""


def entered(windows: Windows, values: Mapping[int, float], width: int) -> dict[str, NDArray[np.float64]]:
    """Return the windows with one more value for some clients.

    Args:
        windows: windows so far; empty at first.
        values: new value of each client.
        width: number of values that a window holds.
    """
    known = windows.get("clients", np.empty(0))
    clients = np.union1d(known, np.fromiter(values, np.float64, len(values)))
    table = np.full((len(clients), width), np.nan)
    if len(known):
        table[np.searchsorted(clients, known)] = windows["values"]
    for client, value in values.items():
        row = table[np.searchsorted(clients, client)]
        row[:-1], row[-1] = row[1:].copy(), value
    return {"clients": clients, "values": table}


def variances(windows: Windows, least: int) -> NDArray[np.float64]:
    """Return the variance of each client's values, [k]; NaN for clients with fewer than `least` values."""
    values = windows.get("values", np.empty((0, 0)))
    counts = (~np.isnan(values)).sum(1)
    found = np.full(len(values), np.nan)
    enough = counts >= max(1, least)
    if enough.any():
        found[enough] = np.nanvar(values[enough], axis=1)
    return found
