"""The fleet on Ray: an idle client actor takes the next block, and references go from actor to actor."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import ray

from algorithms import Bench, Block, DivergedError, Function, Outcome, Visits
from algorithms.tree import Node
from raysim.errors import ModelsLostError, RetriesSpentError
from raysim.fleet.bench import BenchPlan
from raysim.fleet.crew import Crew
from raysim.fleet.inline import run_here
from raysim.fleet.lost import ActorLostError, hung, take
from raysim.fleet.patience import Pace
from raysim.fleet.queue import Queue
from raysim.fleet.traffic import INLINE_LIMIT, Traffic, array_bytes

if TYPE_CHECKING:
    from raysim.fleet.client_actors import ClientActors

CALLS_IN_FLIGHT = 2
"""Calls an actor holds at once: while one runs, the next one's values are fetched."""

SHORT_SECONDS = 0.05
"""A call should last so long, where blocks allow it: each costs milliseconds."""

MOST = 10
"""Clients that a message names."""

DRIVER = -1
"""The driver's number among the actors, for the blocks that it runs itself."""


class RayFleet:
    """Runs blocks on client actors: an idle actor takes the next node of the tree over them, the longest first.

    How many blocks a call takes follows from how long they took so far: the result does not depend on it.

    Until the first actor has arrived the driver runs blocks itself, where its bytes are the same; not those that
    leave models behind, for the driver never holds redistributed weights.

    An actor that dies, or does not answer for much longer than work took so far, is replaced. What it had goes back to
    its queue; a node that it may have died of goes back block by block, so that the next death names the one.

    Args:
        place: the actors, which may be starting still.
        plan: what to set up in each.
        done: called after each block.
        tell: called with what a person should know of: deaths, and what follows.
    """

    def __init__(
        self,
        place: ClientActors,
        plan: BenchPlan,
        done: Callable[[Block], None],
        tell: Callable[[str], object] = lambda text: None,
    ) -> None:
        self.census = plan.census
        self.placement = plan.placement
        self.block_size = plan.block_size
        self.traffic = Traffic()
        self._place = place
        self._plan = plan
        self._done = done
        self._own: Bench | None = None
        self._crew = Crew(place, plan, tell)
        self._maps: list[_Map] = []
        self._running: dict[Any, _Call] = {}
        self._lines: dict[int, _Line] = {}
        self._pace = Pace()
        self._looked = time.monotonic()

    @property
    def starting(self) -> float:
        """Seconds spent on taking in actors, waiting for the first included."""
        return self._crew.starting

    def put(self, value: Any) -> Held:
        """Hold a value, which goes into the object store once, when the first actor needs it."""
        self.traffic.driver += array_bytes(value)
        return Held(value)

    def map(self, function: Function, blocks: Sequence[Block], references: Sequence[Any] = ()) -> Iterator[Outcome]:
        """Begin to run the function on every block; the outcomes come in the blocks' order.

        Raises (as does asking for outcomes):
            ModelsLostError: values that a call needs were lost with their node. All that was under way is forgotten.
            RetriesSpentError: actors died again and again, or none can start.
        """
        # Samples that take so long, as far as it is known: a shorter call is not worth its cost.
        least = self._pace.samples(function, SHORT_SECONDS)
        added = _Map(function, blocks, references, Queue([block.size for block in blocks], self._place.workers, least))
        if blocks:  # a round may have no client
            self._maps.append(added)
        self._crew.gather()
        self._hand_out()
        return self._outcomes(added)

    def close(self) -> None:
        """Release what the driver's own bench holds; the actors end with their context."""
        if self._own is not None:
            self._own.kept.close()
            self._own = None

    def _outcomes(self, wanted: _Map) -> Iterator[Outcome]:
        start = 0
        while start < len(wanted.blocks):
            while start not in wanted.outcomes:
                if wanted not in self._maps:
                    raise ModelsLostError("models were lost with the node that they were on, and this work with them")
                if start in wanted.diverged:
                    raise wanted.diverged[start]
                self._go_on()
            outcome = wanted.outcomes.pop(start)
            yield outcome
            start = outcome.node.stop

    def _go_on(self) -> None:
        """See to whatever happens next."""
        if not self._crew.there and self._help():
            self._crew.gather()
        else:
            self._wait()
        if self._crew.there:
            self.close()
        self._hand_out()

    def _wait(self) -> None:
        """Wait until something has happened, but never longer than until the next look at who does not answer."""
        patience = self._place.patience
        if self._crew.there:
            ready, _ = ray.wait([*self._running, *self._crew.awaited], num_returns=1, timeout=patience.look)
            if ready and ready[0] in self._running:
                self._receive(ready[0])
            else:
                self._crew.gather()
        else:
            self._crew.gather(wait=patience.look)
        if time.monotonic() > self._looked + patience.look:
            self._look()
            self._looked = time.monotonic()

    def _help(self) -> bool:
        """Run a block in the driver, while no actor has ever arrived; whether there was one."""
        if self._place.arrived or not self._place.driver_may_help:
            return False
        for one in self._maps:
            if any(one.function.objects(block) for block in one.blocks):
                continue
            node = one.waiting.last()
            if node is not None:
                if self._own is None:
                    self._own = self._plan.build()
                values = _here(one.references)
                blocks = [replace(block, references=tuple(_here(block.references))) for block in one.blocks]
                try:
                    outcome = run_here(self._own, one.function, node, blocks, values, DRIVER)
                except DivergedError as error:
                    one.diverged[node.start] = error
                    return True
                self.traffic.driver += array_bytes(outcome.value)
                self._finish(one, outcome)
                return True
        return False

    def _look(self) -> None:
        """See to actors that do not answer, and to those that do not start."""
        now, patience = time.monotonic(), self._place.patience
        for actor, line in list(self._lines.items()):
            first = next(iter(line.calls), None)
            if first is None:
                continue
            call = self._running[first]
            limit = self._pace.limit(call.map.function, call.samples, len(call.node.blocks), patience)
            limit *= 2**call.deaths
            # What has come back already only waits to be received.
            if now - line.since > limit and not ray.wait([first], timeout=0)[0]:
                ray.kill(self._crew.there[actor])
                self._lose(actor, hung(first, limit))
        self._crew.look()

    def _hand_out(self) -> None:
        """Give every actor as many blocks as it may hold, those of the oldest map first."""
        for held in range(CALLS_IN_FLIGHT):
            for actor, handle in self._crew.there.items():
                line = self._lines.setdefault(actor, _Line())
                if len(line.calls) <= held and not self._send(actor, handle, line):
                    return

    def _send(self, actor: int, handle: Any, line: _Line) -> bool:
        for one in self._maps:
            node = one.waiting.next(actor)
            if node is not None:
                blocks = [one.blocks[number] for number in node.blocks]
                count = 1 + sum(one.function.objects(block) for block in blocks)
                bare = [(replace(block, references=()), len(block.references)) for block in blocks]
                # References are top-level arguments: Ray resolves them at the actor, from where they were made.
                common = _there(one.references)
                own = _there([reference for block in blocks for reference in block.references])
                call = handle.run.options(num_returns=count)
                returned = call.remote(one.function, bare, len(common), *common, *own)
                first, *objects = [returned] if count == 1 else list(returned)
                self._running[first] = _Call(one, node, actor, objects)
                line.add(first)
                return True
        return False

    def _receive(self, first: Any) -> None:
        call = self._running[first]
        try:
            value, machine, sizes, taken = take(first)
        except ActorLostError as error:
            self._lose(call.actor, error)
            return
        except ModelsLostError:
            self._settle(first)
            if call.map in self._maps:
                # Calls that run still come back to nobody.
                self._maps.clear()
                raise
            return
        except DivergedError as error:
            self._settle(first)
            call.map.diverged[call.node.start] = error
            return
        self._settle(first)
        if call.map in self._maps:
            self.traffic.driver += array_bytes(value)
            self.traffic.inlined += sum(size for size in sizes if size < INLINE_LIMIT)
            self.traffic.moved += taken
            self._finish(call.map, Outcome(call.node, value, tuple(call.objects), machine))

    def _settle(self, first: Any) -> None:
        """A call has come back: the actor goes on with the next one that it has."""
        self._lines[self._running.pop(first).actor].remove(first)

    def _lose(self, actor: int, why: ActorLostError) -> None:
        """Have an actor replaced that died, and what it had run again.

        Raises:
            RetriesSpentError: it was running a block that has run too often.
        """
        calls = [self._running.pop(first) for first in self._lines.pop(actor).calls]
        # It runs them in their order: of the first one it may have died, of the others not.
        if calls and calls[0].map in self._maps:
            calls[0].map.deaths.update(calls[0].node.blocks)
            if calls[0].deaths > self._place.patience.retries:
                raise RetriesSpentError(_spent(calls[0], why)) from why
        self._crew.replace(actor, why)
        for call in calls:
            call.map.again(call.node)

    def _finish(self, one: _Map, outcome: Outcome) -> None:
        blocks = [one.blocks[number] for number in outcome.node.blocks]
        seconds, samples = [each["seconds"] for each in outcome.machine], sum(block.size for block in blocks)
        self._pace.took(one.function, seconds, samples)
        one.outcomes[outcome.node.start] = outcome
        one.left -= len(blocks)
        if not one.left:
            self._maps.remove(one)
        for block in blocks:
            self._done(block)


@dataclass
class Held:
    """A value of the driver's, and where actors find it once one needed it."""

    value: Any
    _reference: Any = None

    def reference(self) -> Any:
        """The value in the object store."""
        if self._reference is None:
            self._reference = ray.put(self.value)
        return self._reference


def _here(references: Sequence[Any]) -> list[Any]:
    """What blocks take that the driver runs: what it put is at hand."""
    return [reference.value if isinstance(reference, Held) else reference for reference in references]


def _there(references: Sequence[Any]) -> list[Any]:
    """What blocks take that an actor runs: what the driver put is in the object store from now on."""
    return [reference.reference() if isinstance(reference, Held) else reference for reference in references]


@dataclass(eq=False)
class _Map:
    """Blocks under way: those that wait, and the outcomes that nobody took yet.

    `deaths` counts, for a block, the actors that may have died of it. What diverged is told of when it is next: the
    first of several, whoever was faster.
    """

    function: Function
    blocks: Sequence[Block]
    references: Sequence[Any]
    waiting: Queue
    outcomes: dict[int, Outcome] = field(default_factory=dict)
    deaths: Counter[int] = field(default_factory=Counter)
    diverged: dict[int, DivergedError] = field(default_factory=dict)
    left: int = 0

    def __post_init__(self) -> None:
        self.left = len(self.blocks)

    def again(self, node: Node) -> None:
        """Queue a node again; block by block where an actor may have died of it."""
        died = any(number in self.deaths for number in node.blocks)
        for part in [Node(number, number + 1) for number in node.blocks] if died else [node]:
            self.waiting.put_back(part)


@dataclass(frozen=True)
class _Call:
    """Neighbouring blocks that an actor has."""

    map: _Map
    node: Node
    actor: int
    objects: list[Any]

    @property
    def samples(self) -> int:
        return sum(self.map.blocks[number].size for number in self.node.blocks)

    @property
    def deaths(self) -> int:
        """How many actors may have died of one of its blocks."""
        return max(self.map.deaths[number] for number in self.node.blocks)


@dataclass
class _Line:
    """The calls that an actor has, in their order, and since when the first of them can run."""

    calls: list[Any] = field(default_factory=list)
    since: float = 0.0

    def add(self, first: Any) -> None:
        if not self.calls:
            self.since = time.monotonic()
        self.calls.append(first)

    def remove(self, first: Any) -> None:
        self.calls.remove(first)
        self.since = time.monotonic()


def _spent(call: _Call, why: ActorLostError) -> str:
    """What to say of a call whose actors die again and again."""
    function, clients = call.map.function, [c for n in call.node.blocks for c in call.map.blocks[n].clients]
    visits = getattr(function, "visits", function)
    what = f"round {visits.number}" if isinstance(visits, Visits) else type(function).__name__
    ids = ", ".join(map(str, clients[:MOST])) + (", ..." if len(clients) > MOST else "")
    whose = "client" if len(clients) == 1 else "clients"
    return f"{what}: the actor with {whose} {ids} died {call.deaths} times, the last time so: {why.words}"
