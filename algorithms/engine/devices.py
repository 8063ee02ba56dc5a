"""Speed of clients in virtual time: the duration of a real federation's rounds, whatever they take here."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import exp, isfinite

from algorithms.engine.errors import require
from algorithms.engine.keys import Purpose, generator


@dataclass(frozen=True)
class Devices:
    """Devices of the clients, and their network. An update of client k takes seconds by this formula.

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
        return self.compute * exp(self.spread * generator(seed, Purpose.DEVICE, 0, client).standard_normal())

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
        return self.wire(down, up, exchanges) + samples / self.rate(seed, client)

    def wire(self, down: float, up: float, exchanges: int = 1) -> float:
        """Return the seconds of a client update on the network, which are equal for all clients."""
        moving = (down / self.down if self.down else 0.0) + (up / self.up if self.up else 0.0)
        return exchanges * self.latency + moving

    def round(self, seed: int, updates: Iterable[tuple[int, float, float, float]]) -> float:
        """Return the seconds of the slowest of some updates (client, samples, bytes down, bytes up)."""
        return max((self.seconds(seed, *update) for update in updates), default=0.0)
