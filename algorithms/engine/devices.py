"""How fast clients are, in virtual time: what a federation's rounds would last, whatever they take here."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import exp, isfinite

from algorithms.engine.errors import require
from algorithms.engine.keys import Purpose, generator


@dataclass(frozen=True)
class Devices:
    """The clients' devices and their network; a visit of client k takes so many seconds.

        latency + bytes down / down + samples / (compute e^(spread z_k)) + bytes up / up,   z_k ~ N(0, 1)

    Args:
        compute: samples that pass through training in a second, > 0: of the median client.
        spread: how unlike the clients' rates of compute are, in [0, 10]: the standard deviation of their logarithms.
        down: bytes a second from the server to a client, >= 0; 0 or None for no limit.
        up: bytes a second from a client to the server, likewise.
        latency: seconds that an exchange with the server takes besides, >= 0.

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
        """A client's samples a second; the same in all rounds of a run."""
        return self.compute * exp(self.spread * generator(seed, Purpose.DEVICE, 0, client).standard_normal())

    def seconds(self, seed: int, client: int, samples: float, down: float, up: float, exchanges: int = 1) -> float:
        """How long a visit takes.

        Args:
            seed: the run's.
            client: who is visited.
            samples: that pass through training, each as often as it does.
            down: bytes that the client receives.
            up: bytes that it sends.
            exchanges: how often in turn the client and the server wait for each other.
        """
        return self.wire(down, up, exchanges) + samples / self.rate(seed, client)

    def wire(self, down: float, up: float, exchanges: int = 1) -> float:
        """What of a visit's seconds passes on the network; the same for all clients."""
        moving = (down / self.down if self.down else 0.0) + (up / self.up if self.up else 0.0)
        return exchanges * self.latency + moving

    def round(self, seed: int, updates: Iterable[tuple[int, float, float, float]]) -> float:
        """How long a synchronous round takes: as its slowest visit, of (client, samples, bytes down, bytes up) each."""
        return max((self.seconds(seed, *update) for update in updates), default=0.0)
