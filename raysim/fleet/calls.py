"""What a Ray fleet remembers of its work: maps under way, calls that actors have, and in which order."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from algorithms import Block, ClientUpdates, DivergedError, Function, Outcome
from raysim.fleet.groups import Join, Sharing, Task
from raysim.fleet.lost import ActorLostError
from raysim.fleet.traffic import Stored

MOST = 10
"""Clients that a message names."""


@dataclass(eq=False)
class Map:
    """Blocks under way: those that wait, and the outcomes that nobody took yet.

    `deaths` counts, for a block, the actors that may have died of it. What diverged is told of when it is next: the
    first of several, whoever was faster.
    """

    function: Function
    blocks: Sequence[Block]
    references: Sequence[Any]
    sharing: Sharing
    deaths: Counter[int]
    outcomes: dict[int, Outcome] = field(default_factory=dict)
    diverged: dict[int, DivergedError] = field(default_factory=dict)
    left: int = 0

    def __post_init__(self) -> None:
        self.left = len(self.blocks)

    def asked(self, task: Task) -> tuple[Function, Sequence[Block], Sequence[Stored]]:
        """What an actor is to call for a task, on which blocks, and what these have in common."""
        if not task.parts:
            return self.function, [self.blocks[number] for number in task.node.blocks], self.references
        values = tuple(part.value for part in task.parts)
        nodes = tuple(part.node for part in task.parts)
        return Join(self.function, task.node, nodes), [Block(0, (), 0, references=values)], ()

    def check(self, start: int) -> None:
        """Raise what diverged, where nothing before it is still to come.

        Args:
            start: the first block whose outcome was not taken yet.
        """
        if self.diverged and self.sharing.reached(start, first := min(self.diverged)):
            raise self.diverged[first]


@dataclass(frozen=True)
class Call:
    """What an actor has been asked to do.

    Args:
        map: whose task it is.
        task: what.
        actor: who.
        host: the node that it is on.
        function: that it calls.
        blocks: with which.
        facts: of its execution.
        value: what they come to.
        left: objects that they leave behind.
    """

    map: Map
    task: Task
    actor: int
    host: str
    function: Function
    blocks: Sequence[Block]
    facts: Any
    value: Any
    left: Sequence[Any]

    @property
    def awaited(self) -> Any:
        """What is ready once it is done: where the value is to come, the value itself, for it may take a while."""
        return self.facts if self.task.stays else self.value

    @property
    def deaths(self) -> int:
        """How many actors may have died of one of its blocks."""
        return max(self.map.deaths[number] for number in self.task.node.blocks)


@dataclass
class Line:
    """The calls that an actor has, in their order, and since when the first of them can run."""

    calls: list[Any] = field(default_factory=list)
    since: float = 0.0

    def add(self, awaited: Any) -> None:
        if not self.calls:
            self.since = time.monotonic()
        self.calls.append(awaited)

    def remove(self, awaited: Any) -> None:
        self.calls.remove(awaited)
        self.since = time.monotonic()


def spent(call: Call, why: ActorLostError) -> str:
    """What to say of a call whose actors die again and again."""
    function, clients = call.map.function, [c for n in call.task.node.blocks for c in call.map.blocks[n].clients]
    updates = getattr(function, "updates", function)
    what = f"round {updates.number}" if isinstance(updates, ClientUpdates) else type(function).__name__
    ids = ", ".join(map(str, clients[:MOST])) + (", ..." if len(clients) > MOST else "")
    whose = "client" if len(clients) == 1 else "clients"
    return f"{what}: the actor with {whose} {ids} died {call.deaths} times, the last time so: {why.words}"
