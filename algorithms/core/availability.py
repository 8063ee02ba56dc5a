"""Availability of devices: intervals of virtual time, once or periodic."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import inf

import numpy as np
from numpy.typing import NDArray

Times = NDArray[np.float64]

SLICE = 65_536
"""Devices that are looked up at a time: memory stays bounded, however many there are."""


@dataclass(frozen=True)
class Availability:
    """Intervals in which devices are available: [start, end) in virtual seconds.

    The arrays may be views of a mapped file; no method copies more than a slice of them.

    Args:
        first: first interval of each device, and the number of all intervals, int64 [devices + 1].
        starts: float64 [intervals], ascending for each device.
        ends: float64 [intervals]; above the start, and at most the device's next start.
        periods: seconds after which a device's intervals repeat, float64 [devices]; infinity if they do not. No
            interval ends after the period.
    """

    first: NDArray[np.int64]
    starts: NDArray[np.float64]
    ends: NDArray[np.float64]
    periods: NDArray[np.float64]

    def until(self, device: int, now: float) -> float:
        """Return the time until which a device stays available; `now` if it is not, infinity if it stays for ever."""
        period, part = float(self.periods[device]), slice(int(self.first[device]), int(self.first[device + 1]))
        starts, ends = self.starts[part], self.ends[part]
        time, lasts = _within(now, period), 0.0
        for _ in range(len(starts) + 1):
            place = int(starts.searchsorted(time, side="right")) - 1
            if place < 0 or ends[place] <= time:
                return now + lasts
            lasts += float(ends[place]) - time
            # Intervals may touch, and the last one of a period the first one of the next.
            time = float(ends[place]) if ends[place] < period else 0.0
        return inf if len(starts) else now

    def covers(self, now: float) -> NDArray[np.bool_]:
        """Return whether each device is available, [devices]."""
        found = np.zeros(len(self.periods), bool)
        for devices, owners, starts, ends, times in self._slices(now):
            found[devices][owners[(starts <= times) & (times < ends)]] = True
        return found

    def wait(self, now: float) -> NDArray[np.float64]:
        """Return the seconds until each device is available, [devices]; 0 if it is, infinity if it never will be."""
        found = np.full(len(self.periods), inf)
        for devices, owners, starts, ends, times in self._slices(now):
            later = np.where(ends <= times, self.periods[devices][owners], 0.0)
            np.minimum.at(found[devices], owners, np.maximum(0.0, starts + later - times))
        return found

    def _slices(self, now: float) -> Iterator[tuple[slice, NDArray[np.int64], Times, Times, Times]]:
        """Yield slices of the devices: the device of each interval within the slice, its start, end, and the time."""
        for begin in range(0, len(self.periods), SLICE):
            devices = slice(begin, min(begin + SLICE, len(self.periods)))
            first = self.first[devices.start : devices.stop + 1]
            part = slice(int(first[0]), int(first[-1]))
            owners = np.repeat(np.arange(devices.stop - begin), np.diff(first))
            times = _within_all(now, self.periods[devices])[owners]
            yield devices, owners, self.starts[part], self.ends[part], times


def _within(now: float, period: float) -> float:
    """Return the time since the beginning of the period."""
    return now if period == inf else now % period


def _within_all(now: float, periods: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.where(np.isinf(periods), now, np.mod(now, np.where(np.isinf(periods), 1.0, periods)))
