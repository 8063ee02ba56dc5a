"""Queue of blocks, handed out as nodes of the tree over them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from algorithms.core.tree import Node

SHARE = 2
"""An idle actor takes 1/SHARE of its share of the remaining work: long nodes first, short ones at the end."""

SLACK = 1.25
"""Factor by which a node may exceed its planned length, because halves are seldom equal."""


def work_of(sizes: Sequence[int]) -> list[int]:
    """Return the cumulated work before each block, and in all. A block's work is its samples plus 1."""
    return list(accumulate((size + 1 for size in sizes), initial=0))


class BlockQueue:
    """Waiting blocks, the longest node first. Among equals an actor gets the blocks of its own clients.

    Args:
        work: cumulated work of all blocks; see `work_of`.
        root: range of blocks in the queue.
        actors: number of actors that share the work.
        least: samples below which a node is not cut, because a call has a cost of its own.
    """

    def __init__(self, work: Sequence[int], root: Node, actors: int, least: float = 0) -> None:
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
        self._waiting = [Node(number, number + 1) for number in self._root.blocks]

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
