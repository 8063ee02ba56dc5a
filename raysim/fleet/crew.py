"""The client actors of a fleet: they get ready, they are there, they die, and others take their place."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import ray

from raysim.errors import RetriesSpentError
from raysim.fleet.bench import BenchPlan
from raysim.fleet.lost import AbsentError, ActorLostError, late, take

if TYPE_CHECKING:
    from raysim.fleet.client_actors import ClientActors

LOG = logging.getLogger("raysim")


class Crew:
    """The actors of a fleet, each by its number.

    Args:
        place: starts them, once and again.
        plan: what each sets up before it is there.
        tell: is told of each death, and of what follows.
    """

    def __init__(self, place: ClientActors, plan: BenchPlan, tell: Callable[[str], object]) -> None:
        self.there: dict[int, Any] = {}
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
        room = self._place.room()
        if not self.there and room < 1:
            raise RetriesSpentError(f"no client actor is left, and {self._place.wanting()}; start a node that has")
        if self.there and room < len(self.there) + len(self._starts):
            self._go_on_with_fewer()
            return
        for reference in waiting:
            if now - self._starts[reference].since > self._patience.start:
                self._not_in_time(reference)

    def _prepare(self, actor: int, handle: Any) -> None:
        prepared = handle.prepare.remote(self._plan, self._place.keeper(self._plan))
        self._starts[prepared] = _Start(actor, handle, time.monotonic())

    def _provide(self, start: _Start, node: str) -> None:
        """Have an actor get ready as soon as its node has a copy of the population, however long that takes."""
        copy = self._place.copies.on(node, self._plan)
        prepared = start.handle.prepare.remote(self._plan, self._place.keeper(self._plan), copy)
        self._starts[prepared] = _Start(start.actor, start.handle, float("inf"))

    def _take_in(self, reference: Any) -> None:
        start = self._starts.pop(reference)
        try:
            self._place.admit(take(reference))
        except AbsentError as error:
            self._provide(start, error.node)
        except ActorLostError as error:
            self._start_again(start.actor, error)
        else:
            self._failed.pop(start.actor, None)
            self.there[start.actor] = start.handle
            LOG.info("client actor %d is there", start.actor)

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
        elif self.there or self._starts:
            self._say(f"client actor {actor} did not start {times} times ({why.words}): the run goes on without it")
        else:
            raise RetriesSpentError(f"no client actor starts; one did not {times} times, the last: {why.words}")

    def _go_on_with_fewer(self) -> None:
        """Say, once, that some of the actors wait for resources."""
        if not self._fewer:
            self._fewer = True
            there, wanted = len(self.there), self._place.workers
            self._say(f"{self._place.wanting()} more: the run goes on with {there} of {wanted} client actors")

    def _say(self, text: str) -> None:
        LOG.warning(text)
        self._tell(text)


@dataclass(frozen=True)
class _Start:
    """An actor that is setting up its bench, and since when."""

    actor: int
    handle: Any
    since: float
