"""The fleet on Ray: an idle client actor takes the next block, and references go from actor to actor."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import ray

from algorithms import Block, DivergedError, Function, Outcome, Worker
from algorithms.engine.fleet import SEVERAL
from algorithms.engine.tree import Node
from raysim.common.errors import InputError, ModelsLostError, RetriesSpentError
from raysim.fleet.calls import Call, Line, Map, spent
from raysim.fleet.crew import Crew
from raysim.fleet.groups import Apart, Groups, Part, Sharing, Task, group_size
from raysim.fleet.inline import run_here
from raysim.fleet.lost import ActorLostError, hung, take
from raysim.fleet.patience import Pace
from raysim.fleet.placing import titles
from raysim.fleet.traffic import Held, Left, Traffic, array_bytes
from raysim.fleet.worker_plan import WorkerPlan

if TYPE_CHECKING:
    from raysim.fleet.client_actors import ClientActors

CALLS_IN_FLIGHT = 2
"""Calls an actor holds at once: while one runs, the next one's values are fetched."""

SHORT_SECONDS = 0.05
"""A call should last so long, where blocks allow it: each costs milliseconds."""

DRIVER = -1
"""The driver's number among the actors, for the blocks that it runs itself."""


class RayFleet:
    """Runs blocks on client actors: an idle actor takes the next node of the tree over them, the longest first.

    How many blocks a call takes follows from how long they took so far, and who joins their values from where the
    actors are (see `raysim.fleet.groups`): the result depends on neither.

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
        plan: WorkerPlan,
        done: Callable[[Block], None],
        tell: Callable[[str], object] = lambda text: None,
    ) -> None:
        self.census = plan.census
        self.layouts = plan.layouts
        self.block_size = plan.block_size
        self.traffic = Traffic()
        self._place = place
        self._plan = plan
        self._done = done
        self._own: Worker | None = None
        self._crew = Crew(place, plan, tell)
        self._maps: list[Map] = []
        self._running: dict[Any, Call] = {}
        self._lines: dict[int, Line] = {}
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
        deaths: Counter[int] = Counter()
        added = Map(function, blocks, references, self._shared(function, blocks, deaths), deaths)
        if blocks:  # a round may have no client
            self._maps.append(added)
        self._crew.gather()
        self._hand_out()
        return self._outcomes(added)

    def by_node(self) -> dict[str, dict[str, int]]:
        """Bytes in and out of each of Ray's nodes, as far as they came from or went to another."""
        counted = self.traffic.by_node()
        known = titles() if counted else {}  # a short run may have ended before Ray had started
        return {known[node]: each for node, each in counted.items()}

    def close(self) -> None:
        """Release what the driver's own bench holds; the actors end with their context."""
        if self._own is not None:
            self._own.personal.close()
            self._own = None

    def _shared(self, function: Function, blocks: Sequence[Block], deaths: Counter[int]) -> Sharing:
        """How actors are to share blocks: group by group, where any of them is on another node than the driver."""
        sizes = [block.size for block in blocks]
        # Samples that take so long, as far as it is known: a shorter call is not worth its cost.
        least = self._pace.samples(function, SHORT_SECONDS)
        if self._place.driver_may_help:
            return Apart(sizes, self._place.workers, least, deaths)
        hosts = self._crew.hosts or self._place.hosts
        if hosts == [self._place.home] and not self._place.pinned:
            return Apart(sizes, self._place.workers, least, deaths)
        most = group_size(self._place.group, len(blocks), len(hosts))
        sites = [block.site for block in blocks] if self._place.pinned else None
        if sites and SEVERAL in sites:
            raise InputError(
                f"fleet.pinned = true: must be false where the data of several sites are needed in one place, as "
                f"{type(function).__name__} does; set fleet.pinned = false, or choose another algorithm or measure"
            )
        return Groups(sizes, most, sites, self._crew, least, deaths)

    def _outcomes(self, wanted: Map) -> Iterator[Outcome]:
        start = 0
        while start < len(wanted.blocks):
            while start not in wanted.outcomes:
                if wanted not in self._maps:
                    raise ModelsLostError("models were lost with the node that they were on, and this work with them")
                wanted.check(start)
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
            node = one.sharing.last()
            if node is not None:
                if self._own is None:
                    self._own = self._plan.build()
                # What the driver put is at hand.
                values = [held.value for held in one.references]
                here = [
                    replace(each, references=tuple(held.value for held in each.references))
                    for each in one.blocks[node.start : node.stop]
                ]
                try:
                    done = run_here(self._own, one.function, Node(0, len(here)), here, values, DRIVER)
                except DivergedError as error:
                    one.diverged[node.start] = error
                    return True
                outcome = replace(done, node=node)
                self.traffic.driver += array_bytes(outcome.value)
                self._took(one.function, outcome.machine, [one.blocks[number] for number in node.blocks])
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
            samples = sum(block.size for block in call.blocks)
            limit = self._pace.limit(call.function, samples, len(call.blocks), patience) * 2**call.deaths
            # What has come back already only waits to be received.
            if now - line.since > limit and not ray.wait([first], timeout=0)[0]:
                ray.kill(self._crew.there[actor].handle)
                self._lose(actor, hung(first, limit))
        self._crew.look()

    def _hand_out(self) -> None:
        """Give every actor as much as it may hold, of the oldest map first."""
        for held in range(CALLS_IN_FLIGHT):
            for actor in self._crew.there:
                if not any(one.sharing.waits for one in self._maps):
                    return
                line = self._lines.setdefault(actor, Line())
                if len(line.calls) <= held:
                    self._give(actor, line)

    def _give(self, actor: int, line: Line) -> None:
        for one in self._maps:
            task = one.sharing.next(actor, len(line.calls))
            if task is not None:
                call = self._sent(one, task, actor)
                self._running[call.awaited] = call
                line.add(call.awaited)
                return

    def _sent(self, one: Map, task: Task, actor: int) -> Call:
        """Have an actor do a task."""
        member = self._crew.there[actor]
        function, blocks, common = one.asked(task)
        count = sum(function.objects(block) for block in blocks)
        bare = [(replace(block, references=()), len(block.references)) for block in blocks]
        own = [reference for block in blocks for reference in block.references]
        for stored in (*common, *own):
            stored.taken(member.host, self._place.home, self.traffic)
        # References are top-level arguments: Ray resolves them at the actor, from where they were made.
        objects = [stored.object() for stored in (*common, *own)]
        call = member.handle.run.options(num_returns=2 + count)
        facts, value, *left = call.remote(function, bare, len(common), *objects)
        return Call(one, task, actor, member.host, function, blocks, facts, value, left)

    def _receive(self, awaited: Any) -> None:
        call = self._running[awaited]
        try:
            facts, *value = take([call.facts] if call.task.stays else [call.facts, call.value])
        except ActorLostError as error:
            self._lose(call.actor, error)
            return
        except ModelsLostError:
            self._settle(awaited)
            if call.task.parts:
                call.map.sharing.lost(call.task)
            elif call.map in self._maps:
                # Calls that run still come back to nobody.
                self._maps.clear()
                raise
            return
        except DivergedError as error:
            self._settle(awaited)
            call.map.diverged[call.task.node.start] = error
            return
        self._settle(awaited)
        if call.map in self._maps:
            self._accept(call, facts, value)

    def _settle(self, awaited: Any) -> None:
        """A call has come back: the actor goes on with the next one that it has."""
        self._lines[self._running.pop(awaited).actor].remove(awaited)

    def _accept(self, call: Call, facts: tuple[Any, ...], value: list[Any]) -> None:
        """Take what a call came to: its value, where that was to come, or where it stays."""
        machine, nbytes, sizes, taken = facts
        self._took(call.function, machine, call.blocks)
        self.traffic.moved += taken
        home = self._place.home
        left = tuple(Left(each, size, call.host) for each, size in zip(call.left, sizes, strict=True))
        self.traffic.inlined += sum(each.nbytes for each in left if each.inlined)
        for each in left:
            each.made(home, self.traffic)
        if call.task.stays:
            stays = Left(call.value, nbytes, call.host)
            stays.made(home, self.traffic)
            call.map.sharing.add(Part(call.task.node, stays, left, machine))
            return
        self.traffic.driver += nbytes
        self.traffic.went(call.host, home, nbytes)
        for part in call.task.parts:
            left, machine = (*left, *part.objects), (*machine, *part.machine)
        call.map.sharing.ended(call.task)
        self._finish(call.map, Outcome(call.task.node, value[0], left, machine))

    def _lose(self, actor: int, why: ActorLostError) -> None:
        """Have an actor replaced that died, and what it had done again.

        Raises:
            RetriesSpentError: it was running a block that has run too often.
        """
        host = self._crew.there[actor].host
        calls = [self._running.pop(first) for first in self._lines.pop(actor).calls]
        # It runs them in their order: of the first one it may have died, of the others not.
        if calls and calls[0].map in self._maps:
            calls[0].map.deaths.update(calls[0].task.node.blocks)
            if calls[0].deaths > self._place.patience.retries:
                raise RetriesSpentError(spent(calls[0], why)) from why
        self._crew.replace(actor, why)
        for call in calls:
            call.map.sharing.again(call.task)
        if host not in self._crew.hosts:
            for one in self._maps:
                one.sharing.gone(host)

    def _took(self, function: Function, machine: Sequence[dict[str, float]], blocks: Sequence[Block]) -> None:
        """Take note of how long blocks took."""
        self._pace.took(function, [each["seconds"] for each in machine], sum(block.size for block in blocks))

    def _finish(self, one: Map, outcome: Outcome) -> None:
        one.outcomes[outcome.node.start] = outcome
        one.left -= len(outcome.node.blocks)
        if not one.left:
            self._maps.remove(one)
        for number in outcome.node.blocks:
            self._done(one.blocks[number])
