"""Dispatch of blocks to actors, and the place where their values are joined: the driver, or one node for each group.

The blocks of a call are a node of the fixed tree over all blocks (see `algorithms.core.tree`), and so is a group. The
tree fixes the order of the sums, so the bytes do not depend on the place.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, Literal

from algorithms import Block, Function, Outcome, Output, Worker
from algorithms.core.tree import Node, join_all

SHARE = 2
"""An idle actor takes 1/SHARE of its share of the remaining work: long nodes first, short ones at the end."""

SLACK = 1.25
"""Factor by which a node may exceed its planned length, because halves are seldom equal."""


def work_of(sizes: Sequence[int]) -> list[int]:
    """Return the cumulated work before each block, and in all. A block's work is its samples plus 1."""
    return list(accumulate((size + 1 for size in sizes), initial=0))


def leaves(node: Node) -> list[Node]:
    """Return the nodes of single blocks below a node."""
    return [Node(number, number + 1) for number in node.blocks]


class BlockQueue:
    """Waiting blocks, the longest node first. Among equals an actor gets the blocks of its own clients.

    Args:
        work: cumulated work of all blocks; see `work_of`.
        root: range of blocks in the queue.
        actors: number of actors that share the work.
        least: samples below which a node is not cut, because a call has a cost of its own.
    """

    def __init__(self, work: Sequence[int], root: Node, actors: int, least: float) -> None:
        self._actors = actors
        self._root = root
        self._before = work
        self._left = self._work(root)
        # Every actor gets a share, however short the work.
        self._least = min(least, self._left / actors)
        self._waiting = [root] if root.blocks else []

    @property
    def waits(self) -> bool:
        """Whether a block waits."""
        return bool(self._waiting)

    def scatter(self) -> None:
        """Hand out every block by itself."""
        self._waiting = leaves(self._root)

    def next(self, actor: int) -> Node | None:
        """Take the next node for an idle actor."""
        if not self._waiting:
            return None
        node = max(self._waiting, key=lambda each: self._rank(each, actor))
        self._waiting.remove(node)
        most = SLACK * max(self._least, self._left / (SHARE * self._actors))
        while not node.is_leaf and self._work(node) > most:
            node, other = sorted(node.halves(), key=lambda each: self._rank(each, actor), reverse=True)
            self._waiting.append(other)
        self._left -= self._work(node)
        return node

    def last(self) -> Node | None:
        """Take a single block from the end of the queue."""
        if not self._waiting:
            return None
        node = min(self._waiting, key=self._work)
        self._waiting.remove(node)
        while not node.is_leaf:
            other, node = node.halves()
            self._waiting.append(other)
        self._left -= self._work(node)
        return node

    def put_back(self, node: Node) -> None:
        """Put a node that did not come back into the queue again."""
        self._waiting.append(node)
        self._left += self._work(node)

    def _work(self, node: Node) -> int:
        return self._before[node.stop] - self._before[node.start]

    def _rank(self, node: Node, actor: int) -> tuple[int, bool, int]:
        middle = node.start + node.stop - 2 * self._root.start
        owner = middle * self._actors // (2 * len(self._root.blocks))
        return self._work(node), owner == actor, -node.start


GROUPS_PER_NODE = 4
"""Least number of groups for each of Ray's nodes if their size is "auto". Faster nodes take more of them."""


@dataclass
class ReadyActor:
    """Client actor whose worker is set up, and its calls.

    Args:
        handle: Ray's handle.
        host: id of its node.
        site: site whose clients it may have; None for all clients.
        calls: awaited references of its calls, in order.
        since: time from which the first call can run.
    """

    handle: Any
    host: str
    site: int | None = None
    calls: list[Any] = field(default_factory=list)
    since: float = 0.0

    def add(self, awaited: Any) -> None:
        """Append a call."""
        if not self.calls:
            self.since = time.monotonic()
        self.calls.append(awaited)

    def remove(self, awaited: Any) -> None:
        """Remove a call that has returned."""
        self.calls.remove(awaited)
        self.since = time.monotonic()


ReadyActors = Mapping[int, ReadyActor]
"""Ready actors by number."""


def hosts_of(actors: ReadyActors) -> list[str]:
    """Return the ids of the actors' nodes, sorted."""
    return sorted({actor.host for actor in actors.values()})


def actors_on(actors: ReadyActors, host: str) -> list[int]:
    """Return the numbers of the actors on a node, sorted."""
    return sorted(number for number, actor in actors.items() if actor.host == host)


@dataclass(frozen=True)
class ActorTask:
    """Work of one call: the value of a node of the tree.

    Args:
        node: range of blocks.
        parts: outcomes to join, from left to right; their values are `StoredValue`. None if the blocks are to run.
        stays: whether the value stays with the actor's node, to be joined there.
    """

    node: Node
    parts: tuple[Outcome, ...] = ()
    stays: bool = False


@dataclass(frozen=True)
class JoinValues(Function):
    """Function that joins the values of neighbouring nodes, left to right, which its block has as references."""

    function: Function
    root: Node
    nodes: tuple[Node, ...]

    def join(self, left: Any, right: Any) -> Any:
        return self.function.join(left, right)

    def __call__(self, worker: Worker, block: Block, *values: Any) -> Output:
        return Output(join_all(self.root, zip(self.nodes, values, strict=True), self.function.join))


@dataclass(eq=False)
class BlockGroup:
    """Node of the tree whose value is joined on one of Ray's nodes, or by the driver.

    Args:
        node: range of blocks.
        site: site whose actors may run them; None for all actors.
        host: Ray's node that joins them; None for the driver, or before the group is begun.
        waiting: blocks that wait, once the group is begun.
        parts: outcomes that stay on the node, by first block.
        joining: whether an actor joins them now.
    """

    node: Node
    site: int | None = None
    host: str | None = None
    waiting: BlockQueue | None = None
    parts: dict[int, Outcome] = field(default_factory=dict)
    joining: bool = False

    @property
    def joinable(self) -> bool:
        """Whether all values are there and no actor joins them yet."""
        return not self.joining and sum(len(part.node.blocks) for part in self.parts.values()) == len(self.node.blocks)

    @property
    def waits(self) -> bool:
        """Whether there is work for an actor."""
        return self.joinable or (self.waiting is not None and self.waiting.waits)

    def next(self, place: int) -> ActorTask | None:
        """Return the next task for an actor, by its place among the actors of the group."""
        if self.joinable:
            self.joining = True
            return ActorTask(self.node, tuple(self.parts[start] for start in sorted(self.parts)))
        node = self.waiting.next(place) if self.waiting else None
        return None if node is None else ActorTask(node, stays=self.host is not None and node != self.node)

    def again(self, task: ActorTask, suspect: bool) -> None:
        """Repeat a task whose actor is gone, block by block if the actor may have died of it."""
        self.joining = False
        if not task.parts and self.waiting is not None:
            for piece in leaves(task.node) if suspect else [task.node]:
                self.waiting.put_back(piece)


class BlockDispatcher:
    """Blocks of a map that wait, by group.

    With a group size, each group goes to one of Ray's nodes. The actors there run and join it, and only the group's
    value leaves the node. A group that is not begun may go to any node whose actors may run it. Without a group size,
    each call's value goes to the driver.

    Args:
        sizes: samples of each block.
        actors: ready actors; the caller keeps the mapping up to date.
        deaths: number of actors that may have died of each block; the caller keeps it up to date.
        least: samples below which a call is not cut.
        workers: number of actors that share the work, without a group size.
        group: blocks a group; None to send each value to the driver.
        sites: site of each block, if only the actors of that site may run it; None if all actors may run all blocks.
    """

    def __init__(
        self,
        sizes: Sequence[int],
        actors: ReadyActors,
        deaths: Counter[int],
        least: float,
        workers: int = 1,
        group: int | None = None,
        sites: Sequence[int | None] | None = None,
    ) -> None:
        root, self._work = Node(0, len(sizes)), work_of(sizes)
        self._actors, self._deaths, self._least, self._direct = actors, deaths, least, group is None
        self._groups: list[BlockGroup] = []
        self._fresh: list[BlockGroup] = []
        self._begun: dict[str | None, list[BlockGroup]] = {}
        if group is None:
            self._groups = [BlockGroup(root, waiting=BlockQueue(self._work, root, workers, least))]
            self._begun[None] = list(self._groups)
        elif sizes:
            nodes = groups_of(root, group, sites)
            self._groups = [BlockGroup(node, None if sites is None else sites[node.start]) for node in nodes]
            self._fresh = list(self._groups)
        self._of = [number for number, group in enumerate(self._groups) for _ in group.node.blocks]

    @property
    def waits(self) -> bool:
        """Whether there is work for an idle actor, perhaps on another node."""
        return bool(self._fresh) or any(group.waits for groups in self._begun.values() for group in groups)

    def next(self, number: int, held: int) -> ActorTask | None:
        """Return the next task for an actor that holds `held` calls."""
        if self._direct:
            return self._groups[0].next(number)
        actor = self._actors[number]
        begun, place = self._begun.get(actor.host, []), actors_on(self._actors, actor.host).index(number)
        # Joins go first, because the driver waits for them.
        for group in sorted(begun, key=lambda group: not group.joinable):
            if group.site in (None, actor.site) and (task := group.next(place)) is not None:
                return task
        fresh = self._begin(actor, held)
        return None if fresh is None else fresh.next(place)

    def last(self) -> Node | None:
        """Return a single block for the driver; None if groups are joined on other nodes."""
        return self._groups[0].waiting.last() if self._direct and self._groups[0].waiting else None

    def add(self, part: Outcome) -> None:
        """Record a value that stays on its node."""
        self._group(part.node).parts[part.node.start] = part

    def ended(self, task: ActorTask) -> None:
        """Record that a task's value is with the driver."""
        group = self._group(task.node)
        if not self._direct:
            self._begun[group.host].remove(group)

    def again(self, task: ActorTask) -> None:
        """Repeat a task whose actor is gone, block by block if the actor may have died of it."""
        self._group(task.node).again(task, self._is_suspect(task.node))

    def lost(self, task: ActorTask) -> None:
        """Begin a group again because some of the values to join are lost."""
        group = self._group(task.node)
        self._begun[group.host].remove(group)
        self._renew(group)

    def gone(self, host: str) -> None:
        """Begin all groups of a node again, because no actor is left there."""
        for group in self._begun.pop(host, []):
            self._renew(group)

    def reached(self, start: int, stop: int) -> bool:
        """Return whether the driver waits for block `start`, and all values from there to `stop` exist."""
        group = self._groups[self._of[start]]
        there = {number for part in group.parts.values() for number in part.node.blocks}
        return stop < group.node.stop and all(number in there for number in range(start, stop))

    def _group(self, node: Node) -> BlockGroup:
        return self._groups[self._of[node.start]]

    def _is_suspect(self, node: Node) -> bool:
        """Return whether an actor may have died of one of a node's blocks."""
        return any(number in self._deaths for number in node.blocks)

    def _renew(self, group: BlockGroup) -> None:
        """Offer a group again, to any node."""
        number = self._of[group.node.start]
        self._groups[number] = BlockGroup(group.node, group.site)
        self._fresh.append(self._groups[number])

    def _begin(self, actor: ReadyActor, held: int) -> BlockGroup | None:
        """Begin the longest group that an actor's node may have.

        An actor with work takes none of the last groups ahead of time: another node may be idle first.
        """
        hosts = hosts_of(self._actors)
        fresh = [group for group in self._fresh if group.site in (None, actor.site)]
        if not fresh or (held and len(fresh) <= len(hosts)):
            return None
        chosen = max(fresh, key=lambda each: self._rank(each.node, hosts, actor.host))
        self._fresh.remove(chosen)
        neighbours = len(actors_on(self._actors, actor.host))
        # An actor alone on its node takes the whole group, which leaves nothing to join.
        least = self._least if neighbours > 1 else self._work[-1]
        waiting = BlockQueue(self._work, chosen.node, neighbours, least)
        if self._is_suspect(chosen.node):
            waiting.scatter()
        group = BlockGroup(chosen.node, chosen.site, actor.host, waiting)
        self._groups[self._of[group.node.start]] = group
        self._begun.setdefault(actor.host, []).append(group)
        return group

    def _rank(self, node: Node, hosts: Sequence[str], host: str) -> tuple[int, bool, int]:
        """Prefer the longest; among equals prefer the node's own clients, whose data are warm there."""
        owner = (node.start + node.stop) * len(hosts) // (2 * len(self._of))
        return self._work[node.stop] - self._work[node.start], hosts[owner] == host, -node.start


def groups_of(root: Node, most: int, sites: Sequence[int | None] | None = None) -> list[Node]:
    """Cut the tree into groups, from left to right: its largest nodes of at most `most` blocks and of one site."""
    mixed = sites is not None and len(set(sites[root.start : root.stop])) > 1
    if root.is_leaf or (len(root.blocks) <= most and not mixed):
        return [root]
    return [node for half in root.halves() for node in groups_of(half, most, sites)]


def group_size(group: int | Literal["auto"], blocks: int, hosts: int) -> int:
    """Return the blocks a group; "auto" gives each of Ray's nodes a few groups: ceil(blocks / (4 nodes))."""
    return -(-blocks // (GROUPS_PER_NODE * max(1, hosts))) if group == "auto" else group
