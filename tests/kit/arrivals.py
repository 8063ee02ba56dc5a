"""Asynchronous rounds of the small federation, and devices of given speeds."""

from collections.abc import Callable
from dataclasses import replace
from math import inf
from typing import Any

import numpy as np

from algorithms import (
    Algorithm,
    Availability,
    Compute,
    DeviceTable,
    Local,
    State,
    begin,
    next_round,
)
from raysim.fleet.inline import InlineFleet
from tests.kit.federation import Samples as Data
from tests.kit.federation import perceptron

Federation = Callable[..., InlineFleet]


LOCAL = Local(lr=0.1, batch_size=4, lr_decay=0.9)


FP64 = Compute("sequential", precision="fp64")


def simulate(
    federation: Federation, algorithm: Algorithm, data: list[Data], rounds: int, norm: bool = True, **options: Any
) -> tuple[State, InlineFleet, list[State]]:
    """The state after some rounds in float64, the fleet, and the states on the way."""
    module = perceptron(norm).double()
    devices = options.pop("devices", None)
    fleet = federation(data, module, algorithm.sharing, compute=FP64, **options)
    fleet.census = replace(fleet.census, devices=devices)
    states = [begin(perceptron(norm).double(), fleet, 0, rounds)]
    for number in range(1, rounds + 1):
        states.append(next_round(states[-1], algorithm, fleet, last=number == rounds))
    return states[-1], fleet, states


Interval = tuple[float, float]


def table(
    speeds: list[float], intervals: list[list[Interval]] | None = None, periods: float = inf, latency: float = 0.0
) -> DeviceTable:
    """Return devices of given speeds; each client has its own."""
    n = len(speeds)
    availability = None
    if intervals is not None:
        first = np.cumsum([0, *(len(own) for own in intervals)])
        both = [interval for own in intervals for interval in own]
        starts, ends = (np.array([each[side] for each in both], float) for side in (0, 1))
        availability = Availability(first, starts, ends, np.full(n, periods))
    zero, rows = np.zeros(n), np.arange(n)
    return DeviceTable(rows, np.array(speeds), zero, zero, zero + latency, rows % 2, ("slow", "fast"), availability)
