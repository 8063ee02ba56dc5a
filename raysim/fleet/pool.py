"""Client actors as a fleet sees them: the pool that starts them, and an actor that is ready."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from raysim.fleet.prometheus import PrometheusLogger
from raysim.fleet.timeouts import ActorTimeouts
from raysim.fleet.worker_plan import WorkerPlan


@dataclass
class ReadyActor:
    """Client actor whose worker is set up, and its calls.

    Args:
        handle: Ray's handle.
        host: id of its node.
        site: site whose clients it may have; None for all clients.
        calls: awaited references of its calls, in order.
        since: time from which the first call can run.
    """

    handle: Any
    host: str
    site: int | None = None
    calls: list[Any] = field(default_factory=list)
    since: float = 0.0

    def add(self, awaited: Any) -> None:
        """Append a call."""
        if not self.calls:
            self.since = time.monotonic()
        self.calls.append(awaited)

    def remove(self, awaited: Any) -> None:
        """Remove a call that has returned."""
        self.calls.remove(awaited)
        self.since = time.monotonic()


ReadyActors = Mapping[int, ReadyActor]
"""Ready actors by number."""


def hosts_of(actors: ReadyActors) -> list[str]:
    """Return the ids of the actors' nodes, sorted."""
    return sorted({actor.host for actor in actors.values()})


def actors_on(actors: ReadyActors, host: str) -> list[int]:
    """Return the numbers of the actors on a node, sorted."""
    return sorted(number for number, actor in actors.items() if actor.host == host)


class ActorPool(Protocol):
    """Source of client actors for a fleet: starts, prepares and replaces them.

    Attributes:
        pinned: whether each actor has the clients of one site only.
        group: blocks that are joined on one of several nodes before anything leaves it, or "auto".
        timeouts: limits for starts and calls.
        home: id of the driver's node.
        arrived: whether an actor has ever been ready.
        absence: reason why the driver stands in for the actors; "" if it does not.
        unsaid: the same until the user has a notice of it.
        meter: counts actors and deaths for Prometheus.
    """

    pinned: bool
    group: int | Literal["auto"]
    timeouts: ActorTimeouts
    home: str
    arrived: bool
    absence: str
    unsaid: str
    meter: PrometheusLogger

    @property
    def driver_may_help(self) -> bool:
        """Whether the driver computes the same bytes as the actors."""

    @property
    def workers(self) -> int:
        """Planned number of actors."""

    @property
    def hosts(self) -> list[str]:
        """Ids of the nodes that fit an actor."""

    def handles(self, wait: bool = True) -> list[Any]:
        """Return the actors' handles; none if Ray is still starting and `wait` is false, or if the driver stands in."""

    def stand_in(self, absence: str) -> bool:
        """Let the driver run all blocks until an actor is ready, for this reason; return whether it may."""

    def site(self, number: int) -> int | None:
        """Return the site whose clients an actor may have; None for all clients."""

    def prepare(self, number: int, plan: WorkerPlan, copy_to: str | None = None) -> Any:
        """Set up an actor's worker, after a copy of the population to a node if one is named; return a reference."""

    def admit(self, actor_print: dict[str, str]) -> None:
        """Accept an actor by its fingerprint, or raise RuntimeError if it differs from the others."""

    def replace(self, number: int) -> None:
        """Kill an actor and start another one in its place."""

    def room(self, site: int | None) -> int:
        """Return the number of actors of a site that fit the living nodes."""

    def shortage(self, site: int | None) -> str:
        """Return the message that no living node has room for an actor."""
