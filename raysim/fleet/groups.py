"""Who runs which blocks, and where their values are joined: by the driver, or group by group on one node each.

The blocks of a call are a node of the fixed tree over them (see `algorithms.engine.tree`), and so is a group: whoever joins,
the order of the sums is the tree's, and the bytes are the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from algorithms import Block, Function, Output, Worker
from algorithms.engine.tree import Node, join_all
from raysim.fleet.crew import Member, Roster
from raysim.fleet.queue import Queue, work_of
from raysim.fleet.traffic import Left

GROUPS_A_NODE = 4
"""Groups that each of Ray's nodes has, at least, where their size is "auto": the faster ones take more of them."""


@dataclass(frozen=True)
class Part:
    """The value of some blocks, which stays on the node where it was made.

    Args:
        node: which blocks.
        value: where it is.
        objects: that the blocks left behind.
        machine: for each block facts of its execution.
    """

    node: Node
    value: Left
    objects: tuple[Left, ...]
    machine: tuple[dict[str, float], ...]


@dataclass(frozen=True)
class Task:
    """What an actor is asked for: the value of a node of the tree.

    Args:
        node: which.
        parts: that it is joined from, from left to right; none where its blocks are to be run.
        stays: whether the value stays where it is made, to be joined there.
    """

    node: Node
    parts: tuple[Part, ...] = ()
    stays: bool = False


@dataclass(frozen=True)
class Join:
    """Join the values of neighbouring nodes, which a block has as its references.

    Args:
        function: whose values they are.
        root: what they are joined to.
        nodes: that they are of, from left to right.
    """

    function: Function
    root: Node
    nodes: tuple[Node, ...]

    def objects(self, block: Block) -> int:
        return 0

    def join(self, left: Any, right: Any) -> Any:
        return self.function.join(left, right)

    def __call__(self, worker: Worker, block: Block, *values: Any) -> Output:
        return Output(join_all(self.root, zip(self.nodes, values, strict=True), self.function.join))


class Sharing(Protocol):
    """How the blocks of a map are shared by the actors, and what of them is still to be done."""

    @property
    def waits(self) -> bool:
        """Whether there is anything for an idle actor, perhaps of another node."""
        ...

    def next(self, actor: int, held: int) -> Task | None:
        """What an actor is to do next that has so many calls."""
        ...

    def last(self) -> Node | None:
        """A single block for the driver, from the end of the line."""
        ...

    def add(self, part: Part) -> None:
        """Take note of a value that stays on its node."""
        ...

    def ended(self, task: Task) -> None:
        """Take note that a task's value is with the driver."""
        ...

    def again(self, task: Task) -> None:
        """Have a task done again whose actor is gone."""
        ...

    def lost(self, task: Task) -> None:
        """Have all begun again that a task was to join: some of it is there no more."""
        ...

    def gone(self, host: str) -> None:
        """Have all begun again that was begun on a node: no actor is left there."""
        ...

    def reached(self, start: int, stop: int) -> bool:
        """Whether the driver waits for what begins at a block, and has all of it before another one."""
        ...


class Apart:
    """Each call's value goes to the driver, which is on the actors' node: nothing is won by joining them before.

    Args:
        sizes: samples of each block.
        actors: how many share the work.
        least: samples below which a call need not be cut.
        deaths: actors that may have died of a block.
    """

    def __init__(self, sizes: Sequence[int], actors: int, least: float, deaths: Counter[int]) -> None:
        self._queue = Queue(work_of(sizes), Node(0, len(sizes)), actors, least)
        self._deaths = deaths

    @property
    def waits(self) -> bool:
        return self._queue.waits

    def next(self, actor: int, held: int) -> Task | None:
        node = self._queue.next(actor)
        return None if node is None else Task(node)

    def last(self) -> Node | None:
        return self._queue.last()

    def add(self, part: Part) -> None:
        raise RuntimeError("a value that should have come stayed behind")

    def ended(self, task: Task) -> None:
        """Nothing else is known of it."""

    def again(self, task: Task) -> None:
        for node in _pieces(task.node, self._deaths):
            self._queue.put_back(node)

    def lost(self, task: Task) -> None:
        """There are no joins."""

    def gone(self, host: str) -> None:
        """Nothing is left on nodes."""

    def reached(self, start: int, stop: int) -> bool:
        return start == stop


@dataclass(eq=False)
class Group:
    """A node of the tree whose value is joined on one node of Ray's.

    Args:
        node: its blocks.
        site: whose actors alone may run them; None where all may.
        host: Ray's node, once it is begun.
        waiting: of its blocks, then.
        parts: the values that are there, by their first blocks.
        joining: whether an actor is joining them.
    """

    node: Node
    site: int | None
    host: str = ""
    waiting: Queue | None = None
    parts: dict[int, Part] = field(default_factory=dict)
    joining: bool = False

    @property
    def joinable(self) -> bool:
        """Whether all its values are there, and nobody joins them yet."""
        return not self.joining and sum(len(part.node.blocks) for part in self.parts.values()) == len(self.node.blocks)

    @property
    def waits(self) -> bool:
        """Whether its actors may do something."""
        return self.joinable or (self.waiting is not None and self.waiting.waits)

    def next(self, place: int) -> Task | None:
        """What an actor of its node is to do next, by its place among those there."""
        if self.joinable:
            self.joining = True
            return Task(self.node, tuple(self.parts[start] for start in sorted(self.parts)))
        node = self.waiting.next(place) if self.waiting else None
        return None if node is None else Task(node, stays=node != self.node)


class Groups:
    """A group of blocks is given to one of Ray's nodes, whose actors run and join them: only the group's value leaves.

    A group that is not begun may go to any node whose actors may run it.

    Args:
        sizes: samples of each block.
        most: blocks a group.
        sites: of each block, where only that site's actors may run it; None where all may run all.
        crew: the actors.
        least: samples below which a call need not be cut.
        deaths: actors that may have died of a block.
    """

    def __init__(
        self,
        sizes: Sequence[int],
        most: int,
        sites: Sequence[int | None] | None,
        crew: Roster,
        least: float,
        deaths: Counter[int],
    ) -> None:
        self._work = work_of(sizes)
        nodes = groups_of(Node(0, len(sizes)), most, sites) if sizes else []
        self._groups = [Group(node, None if sites is None else sites[node.start]) for node in nodes]
        self._of = [number for number, group in enumerate(self._groups) for _ in group.node.blocks]
        self._fresh = list(self._groups)
        self._begun: dict[str, list[Group]] = {}
        self._crew, self._least, self._deaths = crew, least, deaths

    @property
    def waits(self) -> bool:
        return bool(self._fresh) or any(group.waits for groups in self._begun.values() for group in groups)

    def next(self, actor: int, held: int) -> Task | None:
        member = self._crew.there[actor]
        begun, place = self._begun.get(member.host, []), self._crew.neighbours(member.host).index(actor)
        # What can be joined goes first: the driver waits for it.
        for group in sorted(begun, key=lambda group: not group.joinable):
            if group.site in (None, member.site) and (task := group.next(place)) is not None:
                return task
        fresh = self._begin(member, held)
        return None if fresh is None else fresh.next(place)

    def last(self) -> Node | None:
        return None  # the driver is on no node of theirs

    def add(self, part: Part) -> None:
        self._group(part.node).parts[part.node.start] = part

    def ended(self, task: Task) -> None:
        group = self._group(task.node)
        self._begun[group.host].remove(group)

    def again(self, task: Task) -> None:
        group = self._group(task.node)
        group.joining = False
        if not task.parts and group.waiting is not None:
            for node in _pieces(task.node, self._deaths):
                group.waiting.put_back(node)

    def lost(self, task: Task) -> None:
        group = self._group(task.node)
        self._begun[group.host].remove(group)
        self._renew(group)

    def gone(self, host: str) -> None:
        for group in self._begun.pop(host, []):
            self._renew(group)

    def reached(self, start: int, stop: int) -> bool:
        group = self._groups[self._of[start]]
        there = {number for part in group.parts.values() for number in part.node.blocks}
        return stop < group.node.stop and all(number in there for number in range(start, stop))

    def _group(self, node: Node) -> Group:
        return self._groups[self._of[node.start]]

    def _renew(self, group: Group) -> None:
        """Have a group begun again, anywhere."""
        number = self._of[group.node.start]
        self._groups[number] = Group(group.node, group.site)
        self._fresh.append(self._groups[number])

    def _begin(self, member: Member, held: int) -> Group | None:
        """Begin the longest group that an actor's node may have.

        Whoever has work takes none of the last ones ahead of time: another node may be idle first.
        """
        hosts = self._crew.hosts
        fresh = [group for group in self._fresh if group.site in (None, member.site)]
        if not fresh or (held and len(fresh) <= len(hosts)):
            return None
        group = max(fresh, key=lambda each: self._rank(each.node, hosts, member.host))
        self._fresh.remove(group)
        group.host = member.host
        self._begun.setdefault(member.host, []).append(group)
        actors = len(self._crew.neighbours(member.host))
        # Alone on its node an actor takes it whole, and there is nothing to join.
        group.waiting = Queue(self._work, group.node, actors, self._least if actors > 1 else self._work[-1])
        if any(number in self._deaths for number in group.node.blocks):
            group.waiting.scatter()
        return group

    def _rank(self, node: Node, hosts: Sequence[str], host: str) -> tuple[int, bool, int]:
        """The longest first; of equally long ones those of the node's own clients, whose data are warm there."""
        owner = (node.start + node.stop) * len(hosts) // (2 * len(self._of))
        return self._work[node.stop] - self._work[node.start], hosts[owner] == host, -node.start


def groups_of(root: Node, most: int, sites: Sequence[int | None] | None = None) -> list[Node]:
    """Cut the tree into groups, from left to right: the largest nodes of so many blocks, none with two sites.

    Args:
        root: the tree.
        most: blocks a group.
        sites: of each block; None where they may be mixed.
    """
    mixed = sites is not None and len(set(sites[root.start : root.stop])) > 1
    if root.is_leaf or (len(root.blocks) <= most and not mixed):
        return [root]
    return [node for half in root.halves() for node in groups_of(half, most, sites)]


def group_size(group: int | Literal["auto"], blocks: int, hosts: int) -> int:
    """Blocks a group; "auto" gives each of Ray's nodes a few of them: ceil(blocks / (4 nodes)).

    Args:
        group: as the configuration says.
        blocks: how many there are.
        hosts: Ray's nodes that have client actors.
    """
    return -(-blocks // (GROUPS_A_NODE * max(1, hosts))) if group == "auto" else group


def _pieces(node: Node, deaths: Counter[int]) -> Iterator[Node]:
    """A node that has not come back; block by block where an actor may have died of it."""
    if any(number in deaths for number in node.blocks):
        return (Node(number, number + 1) for number in node.blocks)
    return iter([node])
