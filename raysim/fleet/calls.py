"""Bookkeeping of a Ray fleet: maps in progress and calls of actors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from algorithms import Block, ClientUpdates, DivergedError, Function, Outcome
from raysim.fleet.dispatch import ActorTask, BlockDispatcher, JoinValues
from raysim.fleet.results import ActorLostError
from raysim.fleet.traffic import StoredValue

MAX_CLIENTS = 10
"""Clients that a message names."""


@dataclass(eq=False)
class PendingMap:
    """Blocks in progress: those that wait, and outcomes that the caller has not taken yet.

    Divergence is raised for the first diverged block, whichever actor was faster.

    Args:
        function: function of each block.
        blocks: all blocks.
        references: values that all blocks take.
        dispatcher: hands out the blocks.
        deaths: number of actors that may have died of each block.
        outcomes: outcomes that are not taken yet, by first block.
        diverged: errors of blocks that diverged, by first block.
        left: number of blocks without an outcome.
    """

    function: Function
    blocks: Sequence[Block]
    references: Sequence[Any]
    dispatcher: BlockDispatcher
    deaths: Counter[int]
    outcomes: dict[int, Outcome] = field(default_factory=dict)
    diverged: dict[int, DivergedError] = field(default_factory=dict)
    left: int = 0

    def __post_init__(self) -> None:
        self.left = len(self.blocks)

    def arguments(self, task: ActorTask) -> tuple[Function, Sequence[Block], Sequence[StoredValue]]:
        """Return the function, blocks and common values of the call for a task."""
        if not task.parts:
            return self.function, [self.blocks[number] for number in task.node.blocks], self.references
        values = tuple(part.value for part in task.parts)
        nodes = tuple(part.node for part in task.parts)
        return JoinValues(self.function, task.node, nodes), [Block(0, (), 0, references=values)], ()

    def check(self, start: int) -> None:
        """Raise a divergence if all blocks before it have a value.

        Args:
            start: first block whose outcome is not taken yet.
        """
        if self.diverged and self.dispatcher.reached(start, first := min(self.diverged)):
            raise self.diverged[first]


@dataclass(frozen=True)
class ActorCall:
    """Call of an actor.

    Args:
        map: map of the task.
        task: task of the call.
        actor: number of the actor.
        host: id of its node.
        function: function that the actor runs.
        blocks: blocks that it runs.
        facts: reference to facts of the execution.
        value: reference to the joined value.
        objects: references to objects that the blocks leave behind.
    """

    map: PendingMap
    task: ActorTask
    actor: int
    host: str
    function: Function
    blocks: Sequence[Block]
    facts: Any
    value: Any
    objects: Sequence[Any]

    @property
    def awaited(self) -> Any:
        """Reference that resolves when the call is done: the value if it comes to the driver, or else the facts."""
        return self.facts if self.task.stays else self.value

    @property
    def deaths(self) -> int:
        """Largest number of actors that may have died of one of its blocks."""
        return max(self.map.deaths[number] for number in self.task.node.blocks)


def spent_message(call: ActorCall, why: ActorLostError) -> str:
    """Return the message about a call whose actors die again and again."""
    function, clients = call.map.function, [c for n in call.task.node.blocks for c in call.map.blocks[n].clients]
    updates: Any = function
    while hasattr(updates, "updates"):  # such as those that are also compared
        updates = updates.updates
    what = f"round {updates.round_number}" if isinstance(updates, ClientUpdates) else type(function).__name__
    ids = ", ".join(map(str, clients[:MAX_CLIENTS])) + (", ..." if len(clients) > MAX_CLIENTS else "")
    noun = "client" if len(clients) == 1 else "clients"
    return f"{what}: the actor with {noun} {ids} died {call.deaths} times, the last cause: {why.cause}"
