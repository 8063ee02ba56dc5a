"""Windows: the latest numbers of each client, as plain arrays that a rule or a measure can remember."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Windows: TypeAlias = Mapping[str, NDArray[np.float64]]
"""`clients` [k], ascending, and `values` [k, width], the newest last; not a number where a client has had fewer."""


def entered(windows: Windows, values: Mapping[int, float], width: int) -> dict[str, NDArray[np.float64]]:
    """The windows with one more number for some clients.

    Args:
        windows: as they are; empty at first.
        values: by client.
        width: how many numbers of each client are remembered.
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
    """The variance of each client's numbers [k]; not a number where it has had fewer than `least`."""
    values = windows.get("values", np.empty((0, 0)))
    counts = (~np.isnan(values)).sum(1)
    found = np.full(len(values), np.nan)
    enough = counts >= max(1, least)
    if enough.any():
        found[enough] = np.nanvar(values[enough], axis=1)
    return found
