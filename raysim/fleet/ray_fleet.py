"""Fleet on Ray: an idle client actor takes the next blocks, and references go from actor to actor."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Literal

import ray

from algorithms import Block, DivergedError, Function, Outcome, Worker
from algorithms.core.fleet import SEVERAL
from algorithms.core.tree import Node
from raysim.common.errors import InputError, ModelsLostError, RetriesSpentError
from raysim.fleet.calls import (
    ActorCall,
    ActorLostError,
    CallTimes,
    PendingMap,
    fetch_results,
    hung_error,
    spent_message,
)
from raysim.fleet.crew import Crew
from raysim.fleet.dispatch import ActorTask, BlockDispatcher, ReadyActor, group_size, hosts_of
from raysim.fleet.inline import run_here
from raysim.fleet.pool import ActorPool
from raysim.fleet.resources import node_names
from raysim.fleet.traffic import StoredValue, Traffic, array_bytes
from raysim.fleet.worker_plan import WorkerPlan

CALLS_IN_FLIGHT = 2
"""Calls an actor holds at once: while one runs, Ray fetches the next one's values."""

SHORT_SECONDS = 0.05
"""Least duration of a call if there are enough blocks, because each call costs milliseconds."""

DRIVER_BYTES = 2**28
"""Bytes of redistributed models that the driver holds until an actor is ready: as references to its own objects."""

DRIVER = -1
"""Number of the driver among the actors, for blocks that it runs itself."""


class RayFleet:
    """Fleet whose blocks run on client actors: an idle actor takes the next node of the tree, the longest first.

    Measured times set the number of blocks in a call. The actors' nodes set where values are joined (see
    `raysim.fleet.dispatch`). The result depends on neither.

    Until the first actor is ready the driver runs blocks itself, if its bytes are the same. It leaves out blocks of
    maps that redistribute more than 256 MiB of models, which it would have to hold. It holds the rank keys of its own
    evaluations. If Ray or its actors do not start, the driver stands in for them: it runs every block.

    A dead or hung actor is replaced, and its work goes back to the queue. A node of the tree that it may have died of
    goes back block by block, and every actor holds one call at a time until the map is done. The next death then names
    one block.

    Args:
        pool: client actors, which may still be starting.
        plan: worker that each actor sets up.
        group: blocks that are joined on one of several nodes before anything leaves it, or "auto".
        done: called after each block.
        tell: called with a notice for the user: a death and its consequence.
    """

    def __init__(
        self,
        pool: ActorPool,
        plan: WorkerPlan,
        group: int | Literal["auto"],
        done: Callable[[Block], None],
        tell: Callable[[str], object],
    ) -> None:
        self.census = plan.census
        self.layouts = plan.layouts
        self.block_size = plan.block_size
        self.traffic = Traffic()
        self._pool, self._plan, self._group, self._done = pool, plan, group, done
        self._worker: Worker | None = None
        self._crew = Crew(pool, plan, tell)
        self._maps: list[PendingMap] = []
        self._running: dict[Any, ActorCall] = {}
        self._times = CallTimes()
        self._looked = time.monotonic()

    @property
    def starting(self) -> float:
        """Seconds spent on new actors, the wait for the first one included."""
        return self._crew.starting

    def put(self, value: Any) -> StoredValue:
        """Hold a value; it enters the object store when the first actor needs it."""
        nbytes = array_bytes(value)
        self.traffic.driver += nbytes
        return StoredValue(nbytes, value)

    def map(self, function: Function, blocks: Sequence[Block], references: Sequence[Any] = ()) -> Iterator[Outcome]:
        """Start the function on every block, and return the outcomes in the order of the blocks.

        The call and the iteration raise:

        Raises:
            ModelsLostError: values that a call needs were lost with their node. The fleet drops all work in progress.
            RetriesSpentError: actors died again and again, or none can start.
        """
        deaths: Counter[int] = Counter()
        added = PendingMap(function, blocks, references, self._dispatcher(function, blocks, deaths), deaths)
        if blocks:  # a round may have no client
            # Work without clients is short, such as ranks, and the driver waits for it.
            self._maps.insert(len(self._maps) if any(block.clients for block in blocks) else 0, added)
        self._crew.gather()
        self._hand_out()
        return self._outcomes(added)

    def by_node(self) -> dict[str, dict[str, int]]:
        """Return bytes in and out of each of Ray's nodes, from and to other nodes, by display name."""
        counted = self.traffic.by_node()
        names = node_names() if counted else {}  # a short run may end before Ray has started
        return {names[node]: each for node, each in counted.items()}

    def close(self) -> None:
        """Release the driver's own worker. The actors end with their pool."""
        if self._worker is not None:
            self._worker.personal.close()
            self._worker = None

    def _dispatcher(self, function: Function, blocks: Sequence[Block], deaths: Counter[int]) -> BlockDispatcher:
        """Return the dispatcher of a map; join by group if an actor is not on the driver's node."""
        sizes, ready = [block.size for block in blocks], self._crew.ready
        least = self._times.samples(function, SHORT_SECONDS)
        if self._pool.driver_may_help:
            return BlockDispatcher(sizes, ready, deaths, least, self._pool.workers)
        hosts = hosts_of(ready) or self._pool.hosts
        if hosts == [self._pool.home] and not self._pool.demand.pinned:
            return BlockDispatcher(sizes, ready, deaths, least, self._pool.workers)
        sites = [block.site for block in blocks] if self._pool.demand.pinned else None
        if sites and SEVERAL in sites:
            raise InputError(
                f"fleet.pinned = true: must be false for {type(function).__name__}, which needs the data of several "
                "sites in one place; set fleet.pinned = false, or choose another algorithm or measure"
            )
        group = group_size(self._group, len(blocks), len(hosts))
        return BlockDispatcher(sizes, ready, deaths, least, group=group, sites=sites)

    def _outcomes(self, wanted: PendingMap) -> Iterator[Outcome]:
        start = 0
        while start < len(wanted.blocks):
            while start not in wanted.outcomes:
                if wanted not in self._maps:
                    raise ModelsLostError("models were lost with their node, and this work with them")
                wanted.check(start)
                self._go_on()
            outcome = wanted.outcomes.pop(start)
            yield outcome
            start = outcome.node.stop

    def _go_on(self) -> None:
        """Run a block in the driver, or handle the next event."""
        if not self._crew.ready and self._help():
            self._crew.gather()
        else:
            self._wait()
        if self._crew.ready:
            self.close()
        self._hand_out()

    def _wait(self) -> None:
        """Wait for an event, at most until the next check for actors that do not answer."""
        look = self._pool.timeouts.look
        if self._crew.ready:
            ready, _ = ray.wait([*self._running, *self._crew.awaited], num_returns=1, timeout=look)
            if ready and ready[0] in self._running:
                self._receive(ready[0])
            else:
                self._crew.gather()
        else:
            self._crew.gather(wait=look)
        if time.monotonic() > self._looked + look:
            self._look()
            self._looked = time.monotonic()

    def _help(self) -> bool:
        """Run a block in the driver, unless an actor has ever been ready; return whether there was one."""
        if self._pool.arrived or not self._pool.driver_may_help:
            return False
        for pending in self._maps:
            nbytes = pending.objects * (self.layouts.shared.nbytes + self.layouts.personal.nbytes)
            holds = nbytes <= DRIVER_BYTES or pending.function.driver_may_hold
            if not (holds or self._pool.absence):
                continue
            node = pending.dispatcher.last()
            if node is not None:
                self._run_here(pending, node)
                return True
        return False

    def _run_here(self, pending: PendingMap, node: Node) -> None:
        """Run a block in the driver, which put all of its values."""
        if self._worker is None:
            self._worker = self._plan.build()
        values = [stored.value for stored in pending.references]
        blocks = [
            replace(block, references=tuple(stored.value for stored in block.references))
            for block in pending.blocks[node.start : node.stop]
        ]
        try:
            done = run_here(self._worker, pending.function, Node(0, len(blocks)), blocks, values, DRIVER)
        except DivergedError as error:
            pending.diverged[node.start] = error
            return
        objects = tuple(self.put(value) for value in done.objects)
        outcome = replace(done, node=node, objects=objects)
        self.traffic.driver += array_bytes(outcome.value)
        self._record(pending.function, outcome.machine, [pending.blocks[number] for number in node.blocks])
        self._finish(pending, outcome)
        # Only client updates have rows: evaluations are part of a round's time.
        self._pool.ran_here(len(getattr(outcome.value, "rows", ())))

    def _look(self) -> None:
        """Replace actors that do not answer, and check those that do not start."""
        now, timeouts = time.monotonic(), self._pool.timeouts
        for number, actor in list(self._crew.ready.items()):
            first = next(iter(actor.calls), None)
            if first is None:
                continue
            call = self._running[first]
            samples = sum(block.size for block in call.blocks)
            limit = self._times.limit(call.function, samples, len(call.blocks), timeouts) * 2**call.deaths
            # A call that has returned only waits to be received.
            if now - actor.since > limit and not ray.wait([first], timeout=0)[0]:
                ray.kill(actor.handle)
                self._lose(number, hung_error(first, limit))
        self._crew.look()

    def _hand_out(self) -> None:
        """Fill every actor up to `CALLS_IN_FLIGHT` calls, of the oldest map first.

        After a death in a map in progress, an actor holds one call.
        """
        is_suspect, waits = any(pending.deaths for pending in self._maps), self._waits()
        for held in range(1 if is_suspect else CALLS_IN_FLIGHT):
            for number, actor in self._crew.ready.items():
                if not waits:
                    return
                if len(actor.calls) <= held and self._give(number, actor):
                    waits = self._waits()

    def _waits(self) -> bool:
        """Return whether a map has work for an idle actor; this looks at all of its groups."""
        return any(pending.dispatcher.waits for pending in self._maps)

    def _give(self, number: int, actor: ReadyActor) -> bool:
        """Send an actor its next task; return whether there was one."""
        for pending in self._maps:
            task = pending.dispatcher.next(number, len(actor.calls))
            if task is not None:
                call = self._sent(pending, task, number, actor)
                self._running[call.awaited] = call
                actor.add(call.awaited)
                return True
        return False

    def _sent(self, pending: PendingMap, task: ActorTask, number: int, actor: ReadyActor) -> ActorCall:
        """Send a task to an actor."""
        function, blocks, common = pending.arguments(task)
        count = sum(function.objects(block) for block in blocks)
        bare = [(replace(block, references=()), len(block.references)) for block in blocks]
        stored_values = [*common, *(reference for block in blocks for reference in block.references)]
        for stored in stored_values:
            stored.taken(actor.host, self._pool.home, self.traffic)
        # Top-level references: Ray moves their values straight from their node to the actor.
        references = [stored.object() for stored in stored_values]
        call = actor.handle.run.options(num_returns=2 + count)
        facts, value, *objects = call.remote(function, bare, len(common), *references)
        return ActorCall(pending, task, number, actor.host, function, blocks, facts, value, objects)

    def _receive(self, awaited: Any) -> None:
        call = self._running[awaited]
        try:
            facts, *value = fetch_results([call.facts] if call.task.stays else [call.facts, call.value])
        except ActorLostError as error:
            self._lose(call.actor, error)
            return
        except ModelsLostError:
            self._settle(awaited)
            if call.task.parts:
                call.map.dispatcher.lost(call.task)
            elif call.map in self._maps:
                # Calls in progress still return; `_receive` then drops their results.
                self._maps.clear()
                raise
        except DivergedError as error:
            self._settle(awaited)
            call.map.diverged[call.task.node.start] = error
        else:
            self._settle(awaited)
            if call.map in self._maps:
                self._accept(call, facts, value)

    def _settle(self, awaited: Any) -> None:
        """Remove a call that has returned; its actor goes on with the next one."""
        self._crew.ready[self._running.pop(awaited).actor].remove(awaited)

    def _accept(self, call: ActorCall, facts: tuple[Any, ...], value: list[Any]) -> None:
        """Record a call's value, or its reference if the value stays on its node."""
        machine, nbytes, sizes, taken = facts
        self._record(call.function, machine, call.blocks)
        self.traffic.moved += taken
        home = self._pool.home
        objects = tuple(
            StoredValue(size, reference=reference, host=call.host)
            for reference, size in zip(call.objects, sizes, strict=True)
        )
        self.traffic.inlined += sum(each.nbytes for each in objects if each.inlined)
        for each in objects:
            each.made(home, self.traffic)
        if call.task.stays:
            stays = StoredValue(nbytes, reference=call.value, host=call.host)
            stays.made(home, self.traffic)
            call.map.dispatcher.add(Outcome(call.task.node, stays, objects, machine))
            return
        self.traffic.driver += nbytes
        self.traffic.went(call.host, home, nbytes)
        if call.task.parts:  # a call that only joined values has neither objects nor blocks of its own
            objects = tuple(each for part in call.task.parts for each in part.objects)
            machine = tuple(each for part in call.task.parts for each in part.machine)
        call.map.dispatcher.ended(call.task)
        self._finish(call.map, Outcome(call.task.node, value[0], objects, machine))

    def _lose(self, number: int, why: ActorLostError) -> None:
        """Replace a dead actor and repeat its work.

        Raises:
            RetriesSpentError: it was running a block that has run too often.
        """
        actor = self._crew.ready[number]
        calls = [self._running.pop(awaited) for awaited in actor.calls]
        # An actor runs its calls in order, but a sudden death can also lose the value of the call before the one that
        # killed it. From here on actors hold one call each, so that the next death names its block.
        if calls and calls[0].map in self._maps:
            calls[0].map.deaths.update(calls[0].task.node.blocks)
            if calls[0].deaths > self._pool.timeouts.retries:
                raise RetriesSpentError(spent_message(calls[0], why)) from why
        self._crew.replace(number, why)
        for call in calls:
            call.map.dispatcher.again(call.task)
        if actor.host not in hosts_of(self._crew.ready):
            for pending in self._maps:
                pending.dispatcher.gone(actor.host)

    def _record(self, function: Function, machine: Sequence[dict[str, float]], blocks: Sequence[Block]) -> None:
        """Record the durations of blocks."""
        self._times.add(function, [each["seconds"] for each in machine], sum(block.size for block in blocks))

    def _finish(self, pending: PendingMap, outcome: Outcome) -> None:
        pending.add(outcome)
        if pending.done == len(pending.blocks):
            self._maps.remove(pending)
        for number in outcome.node.blocks:
            self._done(pending.blocks[number])
