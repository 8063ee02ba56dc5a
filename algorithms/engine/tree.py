"""The order of sums: a fixed binary tree over a round's blocks.

Floating-point sums depend on their order, so the order is the tree's, whoever adds: halves are joined, left before
right, all the way up. An actor that ran all blocks of a node may join them before it sends, and the driver joins the
rest. How much work a call takes is free then, and the bytes are always the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class Node:
    """The blocks from `start` to before `stop`, at least one."""

    start: int
    stop: int

    @property
    def blocks(self) -> range:
        return range(self.start, self.stop)

    @property
    def is_leaf(self) -> bool:
        return self.stop - self.start == 1

    def halves(self) -> tuple[Node, Node]:
        """The two nodes that it joins."""
        middle = (self.start + self.stop) // 2
        return Node(self.start, middle), Node(middle, self.stop)


def join_all(root: Node, parts: Iterator[tuple[Node, T]], join: Callable[[T, T], T]) -> T:
    """Join the values of nodes to the root's.

    Args:
        root: the tree.
        parts: nodes that cover it, each with its value, from left to right; asked for one at a time.
        join: two neighbours' values; may change the left one.
    """
    return _value(root, [], parts, join)


def _value(node: Node, ready: list[tuple[Node, T]], parts: Iterator[tuple[Node, T]], join: Callable[[T, T], T]) -> T:
    """The value of a node; `ready` holds the part that was asked for and not taken yet, if there is one."""
    # No function in `join_all`: one that calls itself is a cycle, and would hold the round's models until collected.
    if not ready:
        ready.append(next(parts))
    if ready[0][0] == node:
        return ready.pop()[1]
    left, right = node.halves()
    return join(_value(left, ready, parts, join), _value(right, ready, parts, join))


def run_node(node: Node, run: Callable[[int], Any], join: Callable[[Any, Any], Any]) -> Any:
    """Run a node's blocks from left to right, joining their values as soon as they are there."""
    return join_all(node, ((Node(number, number + 1), run(number)) for number in node.blocks), join)
