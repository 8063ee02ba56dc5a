"""Crew of a fleet: the actors of a pool whose workers are set up for its plan."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import ray

from raysim.common.errors import RetriesSpentError
from raysim.common.log import LOG
from raysim.fleet.calls import ActorLostError, fetch_start, late_message
from raysim.fleet.dispatch import ReadyActor
from raysim.fleet.pool import ActorPool
from raysim.fleet.remote_files import StoreHandle, store_of
from raysim.fleet.worker_plan import WorkerPlan


class Crew:
    """Actors of a fleet, by number.

    Args:
        pool: starts and replaces actors.
        plan: worker that each actor sets up.
        tell: called with a notice for the user: a death and its consequence.
    """

    def __init__(self, pool: ActorPool, plan: WorkerPlan, tell: Callable[[str], object]) -> None:
        self.ready: dict[int, ReadyActor] = {}
        self.starting = 0.0
        """Seconds spent on new actors, the wait for the first one included."""
        self._pool, self._plan, self._tell = pool, plan, tell
        self._timeouts = pool.timeouts
        self._begun = False
        self._store: StoreHandle | None = None
        self._starts: dict[Any, tuple[int, float]] = {}
        """Number of each actor that is setting up its worker, and the time since which it does."""
        self._failed: Counter[int] = Counter()
        self._fewer = False

    @property
    def awaited(self) -> Iterable[Any]:
        """References that resolve when an actor is ready or has failed to start."""
        return self._starts

    def gather(self, wait: float = 0) -> None:
        """Take in actors that are ready; wait up to `wait` seconds for one."""
        started = time.perf_counter()
        if absence := self._pool.take_notice():
            self._say(f"{absence}: until an actor is ready, the driver runs all blocks, with the same result")
        if not self._begun and (handles := self._pool.handles(wait > 0)):
            self._begun = True
            self._store = None if self._pool.is_here else store_of(self._plan)
            for actor in range(len(handles)):
                self._prepare(actor)
        if self._starts:
            ready, _ = ray.wait([*self._starts], num_returns=1 if wait else len(self._starts), timeout=wait)
            for reference in ready:
                self._take_in(reference)
            if not self._starts:
                self._pool.forget_copies(self._plan)
            self.starting += time.perf_counter() - started

    def replace(self, actor: int, why: ActorLostError) -> None:
        """Replace a ready actor that is lost."""
        del self.ready[actor]
        self._pool.meter.count_death()
        self._pool.meter.set_actors(len(self.ready))
        self._say(f"client actor {actor} died ({why.cause}); another one takes its place and repeats its work")
        self._start_another(actor)

    def look(self) -> None:
        """Check actors that take long to start.

        Raises:
            RuntimeError: no actor is ready and none can start.
        """
        now, sites = time.monotonic(), self._pool.sites
        waiting = {
            reference: start for reference, start in self._starts.items() if now - start[1] > self._timeouts.place
        }
        rooms = {site: self._has_room(site) for site in {sites[actor] for actor, _ in waiting.values()}}
        for reference, (actor, since) in waiting.items():
            if rooms[sites[actor]] and now - since > self._timeouts.start:
                self._not_in_time(reference)

    def _counted(self, site: int | None) -> tuple[int, int]:
        """Return how many actors of a site are ready, and how many are starting."""
        starting = sum(self._pool.sites[actor] == site for actor, _ in self._starts.values())
        return sum(actor.site == site for actor in self.ready.values()), starting

    def _has_room(self, site: int | None) -> bool:
        """Return whether the starting actors of a site fit the living nodes; report once if some wait."""
        room, (ready, starting) = self._pool.room(site), self._counted(site)
        if not ready and room < 1:
            raise RetriesSpentError(f"no client actor is left, and {self._pool.shortage(site)}; start a node that has")
        fits = not ready or room >= ready + starting
        if not fits and not self._fewer:
            self._fewer = True
            count, wanted = len(self.ready), self._pool.workers
            self._say(f"{self._pool.shortage(site)} more: the run goes on with {count} of {wanted} client actors")
        return fits

    def _prepare(self, actor: int) -> None:
        self._starts[self._pool.prepare(actor, self._plan, self._store)] = actor, time.monotonic()

    def _start_another(self, actor: int) -> None:
        self._pool.replace(actor)
        self._prepare(actor)

    def _take_in(self, reference: Any) -> None:
        actor, _ = self._starts.pop(reference)
        try:
            fingerprint, host = fetch_start(reference)
            if fingerprint is not None:
                self._pool.admit(fingerprint)
        except ActorLostError as error:
            self._start_again(actor, error)
            return
        if fingerprint is None:
            # A copy of the population may take any time, so this start has no limit.
            self._starts[self._pool.prepare(actor, self._plan, self._store, host)] = actor, float("inf")
            return
        self._failed.pop(actor, None)
        self.ready[actor] = ReadyActor(self._pool.handles()[actor], host, self._pool.sites[actor])
        self._pool.meter.set_actors(len(self.ready))
        LOG.info("client actor %d is ready, on node %s", actor, host[:8])

    def _not_in_time(self, reference: Any) -> None:
        if not self.ready:
            late = late_message(len(self._starts), self._timeouts.start)
            if self._pool.stand_in(late):
                return
            raise RuntimeError(late)
        self._start_again(self._starts.pop(reference)[0], ActorLostError(f"it took {self._timeouts.start:g} s"))

    def _start_again(self, actor: int, why: ActorLostError) -> None:
        """Repeat the start of an actor, a limited number of times."""
        self._failed[actor] += 1
        if (times := self._failed[actor]) < self._timeouts.starts:
            self._say(f"client actor {actor} did not start ({why.cause}); raysim starts it again")
            self._start_another(actor)
        elif any(self._counted(self._pool.sites[actor])):
            self._say(f"client actor {actor} did not start {times} times ({why.cause}): the run goes on without it")
        else:
            spent = f"no client actor starts; one failed {times} times, the last cause: {why.cause}"
            if not self._pool.stand_in(spent):
                raise RetriesSpentError(spent)

    def _say(self, text: str) -> None:
        LOG.warning(text)
        self._tell(text)
