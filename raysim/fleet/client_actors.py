"""Client actors as the place where a run's blocks are computed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal

from algorithms import Block
from raysim.common.log import LOG
from raysim.fleet.calls import ActorTimeouts
from raysim.fleet.gpu_sharing import gpus_of, idle_notice
from raysim.fleet.pool import ActorPool
from raysim.fleet.ray_fleet import RayFleet
from raysim.fleet.ray_private import START, untold
from raysim.fleet.resources import ActorDemand, ActorResources, living_nodes
from raysim.fleet.worker_plan import WorkerPlan
from raysim.watching.loggers.logger import Logger

STILL_STARTING = "Ray is still starting: waiting, to end it in order"
"""Text for the user while the end of actors waits."""


class ClientActors:
    """Client actors on Ray as the place of a run; a context that starts them in the background, and ends them.

    If their number is left to raysim, they start only in a run that proves long; see `ActorPool`.

    A pinned actor has the clients of one site and runs on a node with the label site=NAME. Models travel to it; the
    data stay.

    Args:
        actors, cpus_per_actor, gpus_per_actor, labels, group, pinned: keys of `[fleet]`; see `ActorDemand`.
        address: address of a running cluster; None to start Ray on this machine.
        timeouts: limits for starts and calls, and the number of retries.
        pool: actors of several runs, instead of new ones; the context leaves them running.

    Raises:
        InputError: the address does not answer, or the actors do not fit the nodes, their GPUs or the population's
            sites (some of this only from `fit` or the fleet).
        RayStartError: Ray does not start, and the driver may not stand in.
        RuntimeError: the actors do not start in time, or their fingerprints differ (from the fleet).
    """

    def __init__(
        self,
        actors: int | None,
        cpus_per_actor: int = 1,
        gpus_per_actor: float | Literal["auto"] = 0,
        address: str | None = None,
        timeouts: ActorTimeouts = ActorTimeouts(),
        labels: Mapping[str, str] | None = None,
        group: int | Literal["auto"] = "auto",
        pinned: bool = False,
        pool: ActorPool | None = None,
    ) -> None:
        gpus, by_memory = (1.0, True) if gpus_per_actor == "auto" else (gpus_per_actor, False)
        demand = ActorDemand(actors, ActorResources(cpus_per_actor, gpus, labels or {}), by_memory, pinned)
        self._lent, self._group, self._idle = pool is not None, group, ""
        self.pool = pool or ActorPool(demand, address, timeouts)
        self.device, self.driver_may_help = self.pool.device, self.pool.driver_may_help
        self.loggers: Mapping[str, Logger] = {"prometheus": self.pool.meter}
        """Loggers beside those of the experiment: Ray's own endpoint for Prometheus."""

    def __enter__(self) -> ClientActors:
        if self._lent or not self.pool.starts_late:
            self.pool.start()
        return self

    def __exit__(self, *_: object) -> None:
        if not self.pool.arrived:
            LOG.info("no actor was ready before the end")
        if not self._lent:
            self.pool.end()

    @property
    def workers(self) -> int:
        """Planned number of actors. Waits for Ray if the number depends on its nodes."""
        return self.pool.workers

    @property
    def fingerprint(self) -> dict[str, str]:
        """Properties that all actors' results depend on."""
        return self.pool.fingerprint

    def current(self) -> str:
        """Return a text on the start of the actors; "" once an actor has been ready, or the driver stands in."""
        if self.pool.arrived or self.pool.absence:
            return ""
        if self.pool.waits_for == "length" and not self._lent:
            return "training in this process; Ray starts if this takes long"
        return f"starting Ray{'; training here meanwhile' if self.driver_may_help else ''}"

    def ending(self) -> str:
        """Return a text if the run must wait for a start of Ray before it ends; "" otherwise."""
        waits = self.pool.waits_for == "start" and not self._lent
        return STILL_STARTING if waits else ""

    def fit(self, plans: Mapping[str, WorkerPlan], updates: int) -> None:
        """Start the actors if their number depends on the plans; see `ActorPool.fit`."""
        wanted = self.pool.demand.number
        self.pool.fit(plans, updates)
        if self.device == "cuda" and not self.pool.demand.pinned:
            each = self.pool.demand.each
            chosen = wanted is None and self.pool.demand.by_memory
            gpus = gpus_of([node for node in living_nodes() if each.on(node)]) if chosen else 0
            self._idle = idle_notice(max(self.workers, gpus), plans)

    def skip(self, updates: int) -> None:
        """Leave out client updates that an earlier command ran; see `ActorPool.skip`."""
        self.pool.skip(updates)

    def fleet(
        self,
        plan: WorkerPlan,
        done: Callable[[Block], None] = lambda block: None,
        tell: Callable[[str], None] = lambda text: None,
    ) -> RayFleet:
        """Return a fleet on these actors, each with a worker of its own."""
        for notice in filter(None, (untold(START), self._idle)):
            tell(notice)
        self._idle = ""
        return RayFleet(self.pool, plan, self._group, done, tell)
