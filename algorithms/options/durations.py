"""Durations of client updates in virtual time; they follow from sizes and devices alone, never from training."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np

from algorithms.core.devices import DrawnDevices
from algorithms.core.fleet import Fleet
from algorithms.core.state import State
from algorithms.parts.option import Parts

Cost = tuple[float, float]
"""Cost of a client update: samples that pass through training, repeats included, and virtual seconds."""


def durations(state: State, algorithm: Parts, fleet: Fleet) -> Callable[[int], Cost]:
    """Return the cost of a client's update on its device by its id; batches that batch norm may skip count."""
    devices, size = fleet.census.devices or DrawnDevices(), algorithm.model_bytes(fleet.layouts)
    local, up = algorithm.local.fitted(fleet.census), size - algorithm.saved_bytes(fleet.layouts)

    @cache
    def passed(samples: int) -> int:
        return sum(len(rows) for rows in local.plan(samples, 1, 0, lambda _: np.random.default_rng(0)))

    def cost(client: int) -> Cost:
        used = passed(int(fleet.census.of(np.array([client]))[0]))
        return used, devices.seconds(state.seed, client, local.method.models * used, size, up)

    return cost
