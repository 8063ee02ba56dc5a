"""Fairness among kinds of devices: who took part how often, and how well the model does on their test parts."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from algorithms import Algorithm, Fleet, State
from partitioning.measures.statistics import gini
from raysim.measures.evaluate import Targets, evaluate


def by_kind(
    state: State, algorithm: Algorithm, fleet: Fleet, targets: Targets, accounts: Mapping[str, NDArray[np.int64]]
) -> dict[str, dict[str, float]]:
    """Return participation and metrics of each kind of devices; nothing without devices.

    Args:
        state: state of the written model.
        algorithm: parts of the algorithm.
        fleet: fleet that runs the blocks.
        targets: data to evaluate on; if they have clients' own test parts, the metrics are those of `local`.
        accounts: sums of each training client, in the census's order; see `AlgorithmFolder.accounts`.

    Returns:
        By kind: `clients`, those that `never` took part, the sums of its accounts, `gini` of its clients' updates (0
        if all have equally many), and the metrics.
    """
    census = fleet.census
    if census.devices is None:
        return {}
    kinds = census.devices.kind(census.clients)
    found: dict[str, dict[str, float]] = {}
    for number in np.unique(kinds).tolist():
        own = {name: accounts[name][kinds == number] for name in accounts if name != "machine_seconds"}
        sums = {name: int(values.sum()) for name, values in own.items()}
        never = int((own["updates"] == 0).sum())
        numbers = {"clients": len(own["updates"]), "never": never, **sums, "gini": gini(own["updates"])}
        found[census.devices.kinds[number]] = numbers
    local = next((target for target in targets.targets if target.name == "local"), None)
    if local is None or len(found) < 2:
        return found
    parts = []
    owned = census.devices.kind(local.owners)
    for number in np.unique(owned).tolist():
        parts.append(replace(local.only(owned == number), name=f"{number}"))
    for column, value in evaluate(state, algorithm, fleet, replace(targets, targets=tuple(parts))).items():
        part, _, metric = column.partition("_")
        if part.isdecimal():
            found[census.devices.kinds[int(part)]][metric] = value
    return found
