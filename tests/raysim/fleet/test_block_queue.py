"""Blocks are handed out as nodes of one tree: none twice, none lost, the longest first."""

from hypothesis import given
from hypothesis import strategies as st

from algorithms.core.tree import Node
from raysim.fleet.block_queue import BlockQueue, work_of


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
