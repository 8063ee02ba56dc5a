"""Devices of the clients in virtual time: their speed, their network, and when they are available."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import exp, inf, isfinite

import numpy as np
from numpy.typing import NDArray

from algorithms.core.errors import require
from algorithms.core.keys import Purpose, generator

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
        time, lasts = now % period, 0.0  # the remainder by infinity is the time itself
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
            times = np.mod(now, self.periods[devices])[owners]
            yield devices, owners, self.starts[part], self.ends[part], times


class Devices(ABC):
    """Devices of all clients; their seconds say how long a real federation would take."""

    kinds: tuple[str, ...] = ("device",)
    """Names of the kinds of devices."""

    @property
    def absent(self) -> bool:
        """Whether some clients are not available at some times."""
        return False

    def kind(self, clients: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the kind of each client's device, as an index of `kinds`, [n]."""
        return np.zeros(len(clients), np.int64)

    @abstractmethod
    def compute_seconds(self, seed: int, client: int, samples: float) -> float:
        """Return the seconds in which a client trains on some samples."""

    @abstractmethod
    def wire(self, client: int, down: float, up: float, exchanges: int = 1) -> float:
        """Return the seconds in which a client receives and sends some bytes, in some exchanges with the server."""

    def seconds(self, seed: int, client: int, samples: float, down: float, up: float, exchanges: int = 1) -> float:
        """Return the seconds of a client update.

        Args:
            seed: seed of the run.
            client: id of the client.
            samples: samples that pass through training, repeats included.
            down: bytes that the client receives.
            up: bytes that it sends.
            exchanges: times that client and server wait for each other.
        """
        return self.wire(client, down, up, exchanges) + self.compute_seconds(seed, client, samples)

    def round(self, seed: int, updates: Iterable[tuple[int, float, float, float]]) -> float:
        """Return the seconds of the slowest of some updates (client, samples, bytes down, bytes up)."""
        return max((self.seconds(seed, *update) for update in updates), default=0.0)

    def available(self, clients: NDArray[np.int64], now: float) -> NDArray[np.bool_]:
        """Return whether each client is available at a time, [n]."""
        return np.ones(len(clients), bool)

    def until(self, client: int, now: float) -> float:
        """Return the time until which a client stays available; `now` if it is not."""
        return inf

    def wait(self, clients: NDArray[np.int64], now: float) -> NDArray[np.float64]:
        """Return the seconds until each client is available, [n]; infinity if it never will be."""
        return np.zeros(len(clients))


@dataclass(frozen=True)
class DrawnDevices(Devices):
    """Devices of drawn speed, always available. An update of client k takes seconds by this formula.

        latency + bytes down / down + samples / (compute e^(spread z_k)) + bytes up / up,   z_k ~ N(0, 1)

    Args:
        compute: samples that the median client trains on in a second, > 0.
        spread: standard deviation of the logarithms of the clients' rates of compute, in [0, 10].
        down: bytes a second from the server to a client, >= 0; 0 or None for no limit.
        up: bytes a second from a client to the server, >= 0; 0 or None for no limit.
        latency: further seconds of each exchange with the server, >= 0.

    Raises:
        InputError: a number is out of its range.
    """

    compute: float = 1000.0
    spread: float = 0.0
    down: float | None = None
    up: float | None = None
    latency: float = 0.0

    def __post_init__(self) -> None:
        above = isfinite(self.compute) and self.compute > 0
        require(above, "devices.compute", self.compute, "a finite number > 0", "set devices.compute = 1000.0")
        within = isfinite(self.spread) and 0 <= self.spread <= 10
        require(within, "devices.spread", self.spread, "in [0, 10]", "set devices.spread = 0.5")
        for name in ("down", "up", "latency"):
            value = getattr(self, name)
            holds = value is None or (isfinite(value) and value >= 0)
            require(holds, f"devices.{name}", value, "a finite number >= 0", f"set devices.{name} = 0")

    def rate(self, seed: int, client: int) -> float:
        """Return a client's samples a second; they are constant in a run."""
        if not self.spread:
            return self.compute
        return self.compute * exp(self.spread * generator(seed, Purpose.DEVICE, 0, client).standard_normal())

    def compute_seconds(self, seed: int, client: int, samples: float) -> float:
        return samples / self.rate(seed, client)

    def wire(self, client: int, down: float, up: float, exchanges: int = 1) -> float:
        moving = (down / self.down if self.down else 0.0) + (up / self.up if self.up else 0.0)
        return exchanges * self.latency + moving


@dataclass(frozen=True)
class DeviceTable(Devices):
    """Devices from a table: one row a device, and the row of each client. The arrays may be views of a mapped file.

    Args:
        rows: row of each client by its id, int64 [clients].
        compute: samples a second, > 0, float64 [devices].
        down: bytes a second from the server, float64 [devices]; 0 for no limit.
        up: bytes a second to the server, float64 [devices]; 0 for no limit.
        latency: seconds of each exchange, float64 [devices].
        numbers: kind of each device as an index of `kinds`, int64 [devices].
        kinds: names of the kinds of devices.
        availability: intervals of each device; None if all are always available.
    """

    rows: NDArray[np.int64]
    compute: NDArray[np.float64]
    down: NDArray[np.float64]
    up: NDArray[np.float64]
    latency: NDArray[np.float64]
    numbers: NDArray[np.int64]
    kinds: tuple[str, ...] = ("device",)
    availability: Availability | None = None

    @property
    def absent(self) -> bool:
        return self.availability is not None

    def kind(self, clients: NDArray[np.int64]) -> NDArray[np.int64]:
        return self.numbers[self.rows[clients]]

    def compute_seconds(self, seed: int, client: int, samples: float) -> float:
        return samples / float(self.compute[self.rows[client]])

    def wire(self, client: int, down: float, up: float, exchanges: int = 1) -> float:
        row = self.rows[client]
        rates = ((down, float(self.down[row])), (up, float(self.up[row])))
        return exchanges * float(self.latency[row]) + sum(sent / rate for sent, rate in rates if rate)

    def available(self, clients: NDArray[np.int64], now: float) -> NDArray[np.bool_]:
        if self.availability is None:
            return super().available(clients, now)
        return self.availability.covers(now)[self.rows[clients]]

    def until(self, client: int, now: float) -> float:
        return inf if self.availability is None else self.availability.until(int(self.rows[client]), now)

    def wait(self, clients: NDArray[np.int64], now: float) -> NDArray[np.float64]:
        if self.availability is None:
            return super().wait(clients, now)
        return self.availability.wait(now)[self.rows[clients]]
