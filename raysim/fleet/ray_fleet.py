"""The fleet on Ray: an idle client actor takes the next block, and references go from actor to actor."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import ray
from ray.exceptions import GetTimeoutError, RayActorError, RayTaskError

from algorithms import Bench, Block, Function, Outcome
from algorithms import InputError as AlgorithmInputError
from algorithms.tree import Node
from partitioning.disk import DiskFullError
from raysim.errors import InputError, OutOfMemoryError
from raysim.fleet.bench import BenchPlan
from raysim.fleet.inline import run_here
from raysim.fleet.queue import Queue
from raysim.fleet.traffic import INLINE_LIMIT, Traffic, array_bytes

if TYPE_CHECKING:
    from raysim.fleet.client_actors import ClientActors

LOG = logging.getLogger("raysim")

START_SECONDS = 180
"""How long Ray and actors may take to start: on a busy machine importing torch alone takes many seconds."""

CALLS_IN_FLIGHT = 2
"""Calls an actor holds at once: while one runs, the next one's values are fetched."""

SHORT_SECONDS = 0.05
"""A call should last so long, where blocks allow it: each costs milliseconds."""

DRIVER = -1
"""The driver's number among the actors, for the blocks that it runs itself."""


class RayFleet:
    """Runs blocks on client actors: an idle actor takes the next node of the tree over them, the longest first.

    How many blocks a call takes follows from how long they took so far: the result does not depend on it.

    Until the first actor has arrived the driver runs blocks itself, where its bytes are the same; not those that
    leave models behind, for the driver never holds redistributed weights.

    Args:
        place: the actors, which may be starting still.
        plan: what to set up in each.
        done: called after each block.
    """

    def __init__(self, place: ClientActors, plan: BenchPlan, done: Callable[[Block], None]) -> None:
        self.census = plan.census
        self.placement = plan.placement
        self.block_size = plan.block_size
        self.traffic = Traffic()
        self._place = place
        self._plan = plan
        self._done = done
        self._own: Bench | None = None
        self._preparing: dict[Any, int] | None = None
        self._arrived: list[int] = []
        self._maps: list[_Map] = []
        self._running: dict[Any, _Call] = {}
        self._pace: dict[type[Any], float] = {}
        self.starting = 0.0
        """Seconds spent on taking in actors, waiting for the first included."""

    def put(self, value: Any) -> Held:
        """Hold a value, which goes into the object store once, when the first actor needs it."""
        self.traffic.driver += array_bytes(value)
        return Held(value)

    def map(self, function: Function, blocks: Sequence[Block], references: Sequence[Any] = ()) -> Iterator[Outcome]:
        """Begin to run the function on every block; the outcomes come in the blocks' order."""
        # Samples that take so long, as far as it is known how long they take: a shorter call is not worth its cost.
        least = SHORT_SECONDS / self._pace.get(type(function), float("inf"))
        queue = Queue([block.size for block in blocks], self._place.workers, least)
        added = _Map(function, blocks, references, queue)
        self._maps.append(added)
        self._admit(wait=False)
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
                self._go_on()
            outcome = wanted.outcomes.pop(start)
            yield outcome
            start = outcome.node.stop

    def _go_on(self) -> None:
        """Wait until something has happened, and see to it."""
        if not self._arrived and self._help():
            self._admit(wait=False)
        elif not self._arrived:
            self._admit(wait=True)
        else:
            awaited = [*self._running, *(self._preparing or ())]
            ready, _ = ray.wait(awaited, num_returns=1)
            if ready[0] in self._running:
                self._receive(ready[0])
            else:
                self._admit(wait=False)
        self._hand_out()

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
                outcome = run_here(self._own, one.function, node, blocks, values, DRIVER)
                self.traffic.driver += array_bytes(outcome.value)
                self._finish(one, outcome)
                return True
        return False

    def _admit(self, wait: bool) -> None:
        """Take in the actors whose bench is set up; if asked to, wait for the first."""
        started = time.perf_counter()
        if self._preparing is None and (handles := self._place.handles(wait)):
            self._preparing = {handle.prepare.remote(self._plan): actor for actor, handle in enumerate(handles)}
        if self._preparing:
            self._take_in(self._preparing, wait)
            self.starting += time.perf_counter() - started

    def _take_in(self, preparing: dict[Any, int], wait: bool) -> None:
        ready, _ = ray.wait(
            list(preparing), num_returns=1 if wait else len(preparing), timeout=START_SECONDS if wait else 0
        )
        if wait and not ready:
            raise RuntimeError(_late(len(preparing)))
        for reference in ready:
            self._place.admit(take(reference))
            actor = preparing.pop(reference)
            self._arrived.append(actor)
            LOG.info("client actor %d is there", actor)
        if self._arrived:
            self.close()

    def _hand_out(self) -> None:
        """Give every actor as many blocks as it may hold, those of the oldest map first."""
        held = [call.actor for call in self._running.values()]
        for _ in range(CALLS_IN_FLIGHT):
            for actor in self._arrived:
                if held.count(actor) < CALLS_IN_FLIGHT and self._send(actor):
                    held.append(actor)

    def _send(self, actor: int) -> bool:
        for one in self._maps:
            node = one.waiting.next(actor)
            if node is not None:
                blocks = [one.blocks[number] for number in node.blocks]
                count = 1 + sum(one.function.objects(block) for block in blocks)
                bare = [(replace(block, references=()), len(block.references)) for block in blocks]
                # References are top-level arguments: Ray resolves them at the actor, from where they were made.
                common = _there(one.references)
                own = _there([reference for block in blocks for reference in block.references])
                call = self._place.handles()[actor].run.options(num_returns=count)
                returned = call.remote(one.function, bare, len(common), *common, *own)
                first, *objects = [returned] if count == 1 else list(returned)
                self._running[first] = _Call(one, node, actor, objects)
                return True
        return False

    def _receive(self, first: Any) -> None:
        call = self._running.pop(first)
        value, machine, sizes, taken = take(first)
        self.traffic.driver += array_bytes(value)
        self.traffic.inlined += sum(size for size in sizes if size < INLINE_LIMIT)
        self.traffic.moved += taken
        self._finish(call.map, Outcome(call.node, value, tuple(call.objects), machine))

    def _finish(self, one: _Map, outcome: Outcome) -> None:
        blocks = [one.blocks[number] for number in outcome.node.blocks]
        seconds, work = sum(each["seconds"] for each in outcome.machine), sum(block.size for block in blocks)
        if work:
            self._pace[type(one.function)] = seconds / work
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
    """Blocks under way: those that wait, and the outcomes that nobody took yet."""

    function: Function
    blocks: Sequence[Block]
    references: Sequence[Any]
    waiting: Queue
    outcomes: dict[int, Outcome] = field(default_factory=dict)
    left: int = 0

    def __post_init__(self) -> None:
        self.left = len(self.blocks)


@dataclass(frozen=True)
class _Call:
    """Neighbouring blocks that an actor has."""

    map: _Map
    node: Node
    actor: int
    objects: list[Any]


def take(references: Any, timeout: float | None = None) -> Any:
    """Fetch values of actors; an error that a user can mend comes as it was raised."""
    try:
        return ray.get(references, timeout=timeout)
    except RayTaskError as error:
        if isinstance(error.cause, (InputError, AlgorithmInputError, OutOfMemoryError, DiskFullError)):
            raise error.cause from None
        raise
    except RayActorError as error:
        raise RuntimeError(f"a client actor died: {error}") from error
    except GetTimeoutError:
        raise RuntimeError(_late(len(references))) from None


def _late(actors: int) -> str:
    offers = ray.available_resources()  # type: ignore[no-untyped-call]
    return (
        f"{actors} client actors did not start within {START_SECONDS} s; the cluster offers {offers}: ask for fewer "
        "actors, or less for each"
    )
