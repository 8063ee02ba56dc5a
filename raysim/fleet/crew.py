"""The client actors of a fleet: they get ready, they are there, they die, and others take their place."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import ray

from raysim.common.errors import RetriesSpentError
from raysim.fleet.lost import AbsentError, ActorLostError, late, take
from raysim.fleet.worker_plan import WorkerPlan

if TYPE_CHECKING:
    from raysim.fleet.client_actors import ClientActors

LOG = logging.getLogger("raysim")


@dataclass(frozen=True)
class Member:
    """A client actor that is there.

    Args:
        handle: Ray's.
        host: the node that it is on.
        site: whose clients alone it may have; None where it may have all.
    """

    handle: Any
    host: str
    site: int | None = None


class Roster:
    """The client actors that are there, each by its number."""

    def __init__(self) -> None:
        self.there: dict[int, Member] = {}

    @property
    def hosts(self) -> list[str]:
        """The nodes that actors are on."""
        return sorted({member.host for member in self.there.values()})

    def neighbours(self, host: str) -> list[int]:
        """The actors on a node."""
        return sorted(actor for actor, member in self.there.items() if member.host == host)


class Crew(Roster):
    """The actors of a fleet, each by its number.

    Args:
        place: starts them, once and again.
        plan: what each sets up before it is there.
        tell: is told of each death, and of what follows.
    """

    def __init__(self, place: ClientActors, plan: WorkerPlan, tell: Callable[[str], object]) -> None:
        super().__init__()
        self.starting = 0.0
        """Seconds spent on taking in actors, waiting for the first included."""
        self._place, self._plan, self._tell = place, plan, tell
        self._patience = place.patience
        self._begun = False
        self._starts: dict[Any, _Start] = {}
        self._failed: Counter[int] = Counter()
        self._fewer = False

    @property
    def awaited(self) -> Iterable[Any]:
        """References that are ready as soon as an actor is, or has failed to be."""
        return self._starts

    def gather(self, wait: float = 0) -> None:
        """Take in the actors whose bench is set up; if asked to, wait so many seconds for one."""
        started = time.perf_counter()
        if not self._begun and (handles := self._place.handles(wait > 0)):
            self._begun = True
            for actor, handle in enumerate(handles):
                self._prepare(actor, handle)
        if self._starts:
            ready, _ = ray.wait([*self._starts], num_returns=1 if wait else len(self._starts), timeout=wait)
            for reference in ready:
                self._take_in(reference)
            self.starting += time.perf_counter() - started

    def replace(self, actor: int, why: ActorLostError) -> None:
        """Have another actor start in the place of one that is there no more."""
        del self.there[actor]
        self._place.meter.died()
        self._place.meter.actors(len(self.there))
        self._say(f"client actor {actor} died ({why.words}); another one takes its place and runs again what it had")
        self._prepare(actor, self._place.replace(actor))

    def look(self) -> None:
        """See to actors that take long to start.

        Raises:
            RuntimeError: nobody is there, and nobody can come.
        """
        now = time.monotonic()
        waiting = [reference for reference, start in self._starts.items() if now - start.since > self._patience.place]
        if not waiting:
            return
        for site in {self._place.site(self._starts[reference].actor) for reference in waiting}:
            if self._has_room(site):
                late = [each for each in waiting if self._place.site(self._starts[each].actor) == site]
                for reference in late:
                    if now - self._starts[reference].since > self._patience.start:
                        self._not_in_time(reference)

    def _has_room(self, site: int | None) -> bool:
        """Whether the actors of a site that are to come have room, if nobody else is in their way."""
        room, there = self._place.room(site), sum(member.site == site for member in self.there.values())
        if not there and room < 1:
            raise RetriesSpentError(f"no client actor is left, and {self._place.wanting(site)}; start a node that has")
        starting = sum(self._place.site(start.actor) == site for start in self._starts.values())
        if there and room < there + starting:
            self._go_on_with_fewer(site)
            return False
        return True

    def _prepare(self, actor: int, handle: Any) -> None:
        plan, keeper = self._place.plan_of(actor, self._plan), self._place.keeper(self._plan)
        self._starts[handle.prepare.remote(plan, keeper)] = _Start(actor, handle, time.monotonic())

    def _provide(self, start: _Start, node: str) -> None:
        """Have an actor get ready as soon as its node has a copy of the population, however long that takes."""
        plan, keeper = self._place.plan_of(start.actor, self._plan), self._place.keeper(self._plan)
        prepared = start.handle.prepare.remote(plan, keeper, self._place.copies.on(node, plan))
        self._starts[prepared] = _Start(start.actor, start.handle, float("inf"))

    def _take_in(self, reference: Any) -> None:
        start = self._starts.pop(reference)
        try:
            fingerprint, host = take(reference)
            self._place.admit(fingerprint)
        except AbsentError as error:
            self._provide(start, error.node)
        except ActorLostError as error:
            self._start_again(start.actor, error)
        else:
            self._failed.pop(start.actor, None)
            self.there[start.actor] = Member(start.handle, host, self._place.site(start.actor))
            self._place.meter.actors(len(self.there))
            LOG.info("client actor %d is there, on node %s", start.actor, host[:8])

    def _not_in_time(self, reference: Any) -> None:
        if not self.there:
            raise RuntimeError(late(len(self._starts), self._patience.start))
        self._start_again(self._starts.pop(reference).actor, ActorLostError(f"it took {self._patience.start:g} s"))

    def _start_again(self, actor: int, why: ActorLostError) -> None:
        """Have an actor start once more that did not come so far, but not for ever."""
        self._failed[actor] += 1
        if (times := self._failed[actor]) < self._patience.starts:
            self._say(f"client actor {actor} did not start ({why.words}); it is started again")
            self._prepare(actor, self._place.replace(actor))
        elif self._has_others(actor):
            self._say(f"client actor {actor} did not start {times} times ({why.words}): the run goes on without it")
        else:
            raise RetriesSpentError(f"no client actor starts; one did not {times} times, the last: {why.words}")

    def _has_others(self, actor: int) -> bool:
        """Whether there are other actors, or may be, for what this one would do."""
        site = self._place.site(actor)
        coming = (self._place.site(start.actor) for start in self._starts.values())
        return any(each == site for each in (*coming, *(member.site for member in self.there.values())))

    def _go_on_with_fewer(self, site: int | None) -> None:
        """Say, once, that some of the actors wait for resources."""
        if not self._fewer:
            self._fewer = True
            there, wanted = len(self.there), self._place.workers
            self._say(f"{self._place.wanting(site)} more: the run goes on with {there} of {wanted} client actors")

    def _say(self, text: str) -> None:
        LOG.warning(text)
        self._tell(text)


@dataclass(frozen=True)
class _Start:
    """An actor that is setting up its bench, and since when."""

    actor: int
    handle: Any
    since: float
