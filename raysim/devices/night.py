"""Model of day and night: each client is available in its night, when its owner charges it and does not use it."""

import numpy as np
from numpy.typing import NDArray

from algorithms import Availability, DeviceTable, DrawnDevices, Purpose, generator
from algorithms.core.devices import SLICE
from algorithms.core.keys import Streams

HOUR, DAY = 3600.0, 86_400.0
"""Seconds."""

BEDTIME, BEDTIME_SPREAD, LENGTH_SPREAD = 22.0, 1.0, 0.25
"""Mean and standard deviation of a night's start in hours, and standard deviation of the logarithm of its length."""


def nights(random: np.random.Generator, devices: int, zones: int = 24, hours: float = 8.0) -> Availability:
    """Draw the night of each device; it repeats every day.

    Production systems train while a phone charges, is idle and has an unmetered network, which is mostly at night, so
    that the number of available phones swings with the hour (Bonawitz et al., 2019, section 9). In virtual seconds
    from midnight of the first time zone:

        start = (22 h + 1 h x - 24 h z / zones) mod 24 h,    x ~ N(0, 1),  z uniform on 0, ..., zones - 1
        length = min(24 h, hours e^(0.25 y)),                y ~ N(0, 1)

    Args:
        random: stream of the draws.
        devices: number of devices.
        zones: number of time zones, spread evenly over the day.
        hours: median length of a night.
    """
    zone = random.integers(zones, size=devices) * (DAY / zones)
    start = np.mod((BEDTIME + BEDTIME_SPREAD * random.standard_normal(devices)) * HOUR - zone, DAY)
    length = np.minimum(DAY, hours * HOUR * np.exp(LENGTH_SPREAD * random.standard_normal(devices)))
    # A night over the period's end is two intervals, of which the first one begins at 0.
    rest = np.minimum(start + length - DAY, start)
    first = np.concatenate([[0], np.cumsum(1 + (rest > 0))])
    starts, ends = np.zeros(first[-1]), np.zeros(first[-1])
    starts[first[1:] - 1], ends[first[1:] - 1] = start, np.minimum(start + length, DAY)
    ends[first[:-1][rest > 0]] = rest[rest > 0]
    return Availability(first, starts, ends, np.full(devices, DAY))


def _normal(seed: int, clients: int) -> NDArray[np.float64]:
    """Return the draw of each client that `DrawnDevices.rate` makes; slices keep the streams' memory small."""
    found = np.empty(clients)
    for first in range(0, clients, SLICE):
        ids = range(first, min(first + SLICE, clients))
        streams = Streams(seed, Purpose.DEVICE, 0, ids)
        found[first : first + len(ids)] = [streams.at(place).standard_normal() for place in range(len(ids))]
    return found


def night_devices(drawn: DrawnDevices, seed: int, clients: int, zones: int, hours: float) -> DeviceTable:
    """Return devices of drawn speed that are available at night; the speeds are those of `drawn` alone."""

    def same(value: float | None) -> NDArray[np.float64]:
        return np.full(clients, value or 0.0)

    compute = same(drawn.compute)
    if drawn.spread:
        compute = drawn.compute * np.exp(drawn.spread * _normal(seed, clients))
    rows = np.arange(clients)
    availability = nights(generator(seed, Purpose.NIGHT), clients, zones, hours)
    numbers = np.zeros(clients, np.int64)
    return DeviceTable(
        rows, compute, same(drawn.down), same(drawn.up), same(drawn.latency), numbers, availability=availability
    )
