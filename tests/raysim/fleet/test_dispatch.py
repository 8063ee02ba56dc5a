"""Blocks and groups of them: none is lost or handed out twice, and all are joined in the order of the tree."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from algorithms import Outcome
from algorithms.core.tree import Node, join_all, run_node
from raysim.fleet.dispatch import (
    ActorTask,
    BlockDispatcher,
    BlockQueue,
    ReadyActor,
    group_size,
    groups_of,
    hosts_of,
    work_of,
)
from raysim.fleet.traffic import StoredValue


def queue_of(sizes: list[int], actors: int, least: int = 0) -> BlockQueue:
    return BlockQueue(work_of(sizes), Node(0, len(sizes)), actors, least)


@given(st.lists(st.integers(0, 1000), max_size=60), st.integers(1, 9), st.integers(0, 500), st.data())
def test_every_block_goes_out_once_in_nodes_of_the_tree(
    sizes: list[int], actors: int, least: int, data: st.DataObject
) -> None:
    queue, nodes = queue_of(sizes, actors, least), []
    while node := queue.last() if data.draw(st.booleans()) else queue.next(data.draw(st.integers(0, actors - 1))):
        nodes.append(node)
    assert queue.next(0) is None and queue.last() is None
    assert sorted(number for node in nodes for number in node.blocks) == list(range(len(sizes)))
    tree = in_tree(Node(0, len(sizes))) if sizes else set()
    assert all(node in tree for node in nodes)


def in_tree(node: Node) -> set[Node]:
    return {node} if node.is_leaf else {node}.union(*(in_tree(half) for half in node.halves()))


def test_short_work_goes_out_in_one_call_each_and_everyone_has_a_share() -> None:
    queue = queue_of([10] * 8, actors=2, least=40)
    assert [queue.next(1), queue.next(0), queue.next(0)] == [Node(4, 8), Node(0, 4), None]


def test_long_work_begins_with_long_nodes_and_ends_with_single_blocks() -> None:
    queue = queue_of([100] * 32, actors=2)
    lengths = [len(node.blocks) for node in iter(lambda: queue.next(0), None)]
    assert lengths[0] == 8 and lengths[-1] == 1 and len(lengths) < 20


def test_the_longest_block_goes_first() -> None:
    queue = queue_of([3, 1, 90, 7], actors=2)
    assert [queue.next(0) for _ in range(4)] == [Node(2, 3), Node(3, 4), Node(0, 1), Node(1, 2)]


def test_the_last_block_is_a_single_one() -> None:
    queue = queue_of([3, 3, 3, 3], actors=1)
    assert queue.last() == Node(3, 4)


def test_what_is_put_back_goes_out_again() -> None:
    queue = queue_of([100] * 8, actors=2)
    lost = [queue.next(0), queue.next(1)]
    for node in lost:
        assert node is not None
        for number in node.blocks:
            queue.put_back(Node(number, number + 1))
    nodes = list(iter(lambda: queue.next(0), None))
    assert sorted(number for node in nodes for number in node.blocks) == list(range(8))


def join(left: Any, right: Any) -> Any:
    """A value that remembers how it was joined."""
    return (left, right)


def whole(node: Node) -> Any:
    return run_node(node, lambda number: number, join)


@dataclass
class Work:
    """Actors of two sites' nodes, what they were given, and what the driver got."""

    blocks: int
    groups: BlockDispatcher
    actors: dict[int, ReadyActor]
    deaths: Counter[int]
    running: list[tuple[int, ActorTask]] = field(default_factory=list)
    came: dict[int, tuple[Node, Any]] = field(default_factory=dict)

    def hand_out(self) -> None:
        for held in (0, 1):
            for actor in self.actors:
                if sum(each == actor for each, _ in self.running) <= held:
                    task = self.groups.next(actor, held)
                    if task is not None:
                        self.running.append((actor, task))

    def end(self, place: int) -> None:
        """A call comes back: the blocks of a group are all of its node."""
        actor, task = self.running.pop(place)
        host = self.actors[actor].host
        assert {part.value.host for part in task.parts} <= {host}
        if task.parts:
            parts = iter([(part.node, part.value.reference) for part in task.parts])
            value = join_all(task.node, parts, join)
        else:
            value = whole(task.node)
        if task.stays:
            self.groups.add(Outcome(task.node, StoredValue(0, reference=value, host=host), (), ()))
            return
        self.groups.ended(task)
        assert task.node.start not in self.came
        self.came[task.node.start] = (task.node, value)

    def kill(self, actor: int, host: str) -> None:
        """An actor dies, and another one takes its place, perhaps on another node."""
        member = self.actors.pop(actor)
        lost = [task for each, task in self.running if each == actor]
        self.running = [(each, task) for each, task in self.running if each != actor]
        self.deaths.update(number for task in lost[:1] for number in task.node.blocks)
        for task in lost:
            self.groups.again(task)
        if member.host not in hosts_of(self.actors):
            self.groups.gone(member.host)
        self.actors[actor] = ReadyActor(None, host)

    def lose(self, place: int) -> None:
        """What a call was to join is lost."""
        _, task = self.running[place]
        if task.parts:
            self.running.pop(place)
            self.groups.lost(task)

    def value(self) -> Any:
        def parts() -> Iterator[tuple[Node, Any]]:
            yield from (self.came[start] for start in sorted(self.came))

        return join_all(Node(0, self.blocks), parts(), join)


@given(st.integers(1, 40), st.integers(1, 9), st.data())
def test_whatever_dies_the_value_is_the_trees(blocks: int, most: int, data: st.DataObject) -> None:
    deaths = Counter[int]()
    actors = {0: ReadyActor(None, "x"), 1: ReadyActor(None, "x"), 2: ReadyActor(None, "y")}
    work = Work(blocks, BlockDispatcher([7] * blocks, actors, deaths, 0, group=most), actors, deaths)
    for _ in range(data.draw(st.integers(0, 12))):
        work.hand_out()
        if work.running:
            event = data.draw(st.sampled_from([work.end, work.end, work.lose]))
            event(data.draw(st.integers(0, len(work.running) - 1)))
        if data.draw(st.booleans()):
            work.kill(data.draw(st.sampled_from(sorted(actors))), data.draw(st.sampled_from("xyz")))
    for _ in range(10 * blocks + 10):
        work.hand_out()
        if work.running:
            work.end(0)
    assert not work.running and not work.groups.waits
    assert [node for node, _ in work.came.values()].__len__() == len(groups_of(Node(0, blocks), most))
    assert work.value() == whole(Node(0, blocks))


@given(st.integers(1, 200), st.integers(1, 50))
def test_groups_are_the_trees_largest_nodes_of_so_many_blocks(blocks: int, most: int) -> None:
    nodes = groups_of(Node(0, blocks), most)
    assert [number for node in nodes for number in node.blocks] == list(range(blocks))
    assert max(len(node.blocks) for node in nodes) <= most
    assert len(nodes) == 1 or len(nodes) <= 2 * blocks / max(1, most // 2)
    join_all(Node(0, blocks), iter([(node, 0) for node in nodes]), max)


def test_a_group_has_one_site() -> None:
    sites = [0, 0, 0, 1, 1, 1, 1, 2]
    nodes = groups_of(Node(0, 8), 4, sites)
    assert nodes == [Node(0, 2), Node(2, 3), Node(3, 4), Node(4, 6), Node(6, 7), Node(7, 8)]


def test_a_sites_blocks_go_to_its_actors_alone() -> None:
    actors = {0: ReadyActor(None, "x", 0), 1: ReadyActor(None, "y", 1)}
    groups = BlockDispatcher([1] * 4, actors, Counter(), 0, group=2, sites=[0, 0, 1, None])
    assert [groups.next(1, 0), groups.next(0, 0)] == [ActorTask(Node(2, 3)), ActorTask(Node(0, 2))]
    assert groups.next(0, 0) == ActorTask(Node(3, 4))
    assert groups.next(0, 0) is None and groups.next(1, 0) is None


def test_what_diverged_is_told_of_when_all_before_it_is_there() -> None:
    actors = {0: ReadyActor(None, "x"), 1: ReadyActor(None, "x")}
    groups = BlockDispatcher([1] * 4, actors, Counter(), 0, group=4)
    first, second = (groups.next(actor, 0) for actor in (0, 1))
    assert first is not None and second is not None
    assert first.stays and second.stays and first.node.start == 0
    assert groups.reached(0, 0) and not groups.reached(0, second.node.start)
    groups.add(Outcome(first.node, StoredValue(0, reference=0, host="x"), (), ()))
    assert groups.reached(0, first.node.stop)
    assert not groups.reached(0, 4)


@pytest.mark.parametrize(
    ("group", "blocks", "hosts", "expected"),
    [("auto", 32, 2, 4), ("auto", 33, 2, 5), ("auto", 3, 2, 1), (7, 9, 2, 7)],
)
def test_auto_gives_each_node_a_few_groups(group: Any, blocks: int, hosts: int, expected: int) -> None:
    assert group_size(group, blocks, hosts) == expected
