"""The order of sums: a fixed binary tree over a round's blocks.

Floating-point sums depend on their order. Here the tree sets the order for everybody: it joins halves, left before
right, up to the root. An actor that ran all blocks of a node may join them before it sends, and the driver joins the
rest. A call may therefore take any number of blocks without a change of the result's bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class Node:
    """Blocks from `start` to before `stop`, at least one."""

    start: int
    stop: int

    @property
    def blocks(self) -> range:
        return range(self.start, self.stop)

    @property
    def is_leaf(self) -> bool:
        return self.stop - self.start == 1

    def halves(self) -> tuple[Node, Node]:
        """Return the two nodes that this one joins."""
        middle = (self.start + self.stop) // 2
        return Node(self.start, middle), Node(middle, self.stop)


def join_all(root: Node, parts: Iterator[tuple[Node, T]], join: Callable[[T, T], T]) -> T:
    """Join the values of nodes to the value of the root.

    Args:
        root: root of the tree.
        parts: nodes that cover the root, each with its value, from left to right.
        join: function that joins the values of two neighbours; it may change the left one.
    """
    return _value(root, [], parts, join)


def _value(node: Node, ready: list[tuple[Node, T]], parts: Iterator[tuple[Node, T]], join: Callable[[T, T], T]) -> T:
    """Return the value of a node; `ready` holds a part that was asked for and is not used yet, or nothing."""
    # Do not nest this function in `join_all`: it would be a reference cycle, and hold models until a collection.
    if not ready:
        ready.append(next(parts))
    if ready[0][0] == node:
        return ready.pop()[1]
    left, right = node.halves()
    return join(_value(left, ready, parts, join), _value(right, ready, parts, join))


def run_node(node: Node, run: Callable[[int], Any], join: Callable[[Any, Any], Any]) -> Any:
    """Run the blocks of a node from left to right, and join their values at once."""
    return join_all(node, ((Node(number, number + 1), run(number)) for number in node.blocks), join)
