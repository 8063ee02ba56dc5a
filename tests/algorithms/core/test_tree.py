"""The tree of sums: whoever joins what, the bytes are the same."""

import gc
import weakref

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from algorithms.core.tree import Node, join_all, run_node


def cut(node: Node, data: st.DataObject) -> list[Node]:
    """Some nodes that cover a node."""
    if node.is_leaf or data.draw(st.booleans()):
        return [node]
    left, right = node.halves()
    return cut(left, data) + cut(right, data)


@given(st.lists(st.floats(-1e9, 1e9), min_size=1, max_size=40), st.data())
def test_the_sum_does_not_depend_on_who_joined_what(values: list[float], data: st.DataObject) -> None:
    root = Node(0, len(values))
    whole = run_node(root, values.__getitem__, lambda a, b: a + b)
    parts = [(node, run_node(node, values.__getitem__, lambda a, b: a + b)) for node in cut(root, data)]
    joined = join_all(root, iter(parts), lambda a, b: a + b)
    assert np.float64(joined).tobytes() == np.float64(whole).tobytes()


def test_a_node_elsewhere_joins_as_it_does_in_the_tree() -> None:
    """An actor numbers its blocks from 0: halves must fall in the same places."""
    for start in range(9):
        for stop in range(start + 2, 12):
            halves = [(half.start - start, half.stop - start) for half in Node(start, stop).halves()]
            assert halves == [(half.start, half.stop) for half in Node(0, stop - start).halves()]


def test_neighbours_are_joined_from_left_to_right() -> None:
    assert run_node(Node(0, 5), str, lambda a, b: f"({a}{b})") == "((01)(2(34)))"


def test_what_was_joined_is_let_go_at_once() -> None:
    parts = ((Node(i, i + 1), i) for i in range(3))
    seen = weakref.ref(parts)
    gc.disable()
    try:
        assert join_all(Node(0, 3), parts, lambda left, right: left + right) == 3
        del parts
        assert seen() is None
    finally:
        gc.enable()
