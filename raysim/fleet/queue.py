"""Blocks that wait, handed out as nodes of the tree over them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from algorithms.engine.tree import Node

SHARE = 2
"""An idle actor takes the so-many-th part of its share of what is left: long nodes first, short ones at the end."""

SLACK = 1.25
"""By how much a node may be longer than it should: halves are seldom equal."""


def work_of(sizes: Sequence[int]) -> list[int]:
    """How much work there is before each block, and in all, by the samples of each; one without any is work, too."""
    return list(accumulate((size + 1 for size in sizes), initial=0))


class Queue:
    """Blocks that wait, the longest node first; of equally long ones an actor prefers those of its own clients.

    Args:
        work: that the blocks are, and those before them: see `work_of`.
        root: the node whose blocks they are.
        actors: how many share the work.
        least: samples below which a node need not be cut: less is not worth a call.
    """

    def __init__(self, work: Sequence[int], root: Node, actors: int, least: float = 0) -> None:
        self._actors = actors
        self._root = root
        self._before = work
        self._left = self._work(root)
        # However short the work, everyone has a share.
        self._least = min(least, self._left / actors)
        self._waiting = [root] if root.blocks else []

    @property
    def waits(self) -> bool:
        """Whether there is a block."""
        return bool(self._waiting)

    def scatter(self) -> None:
        """Have every block handed out by itself."""
        self._waiting = [Node(number, number + 1) for number in self._root.blocks]

    def next(self, actor: int) -> Node | None:
        """The next node for an idle actor."""
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
        """A single block from the end of the line."""
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
        """Have a node handed out again that has not come back."""
        self._waiting.append(node)
        self._left += self._work(node)

    def _work(self, node: Node) -> int:
        return self._before[node.stop] - self._before[node.start]

    def _rank(self, node: Node, actor: int) -> tuple[int, bool, int]:
        middle = node.start + node.stop - 2 * self._root.start
        owner = middle * self._actors // (2 * len(self._root.blocks))
        return self._work(node), owner == actor, -node.start
