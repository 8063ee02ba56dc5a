"""A Ray of several nodes on this machine, whose processes and nodes can be killed."""

from __future__ import annotations

import os
from contextlib import ExitStack
from types import TracebackType
from typing import Any

from tests.fuzz.processes import client_actors
from tests.kit.ray import nodes


class Grid:
    """A head on which no actor fits, and two nodes for one actor each; a context.

    Drivers run beside it and connect to it, so all client updates run on the actors.
    """

    def __enter__(self) -> Grid:
        self._stack = ExitStack()
        self._cluster = self._stack.enter_context(nodes(connected=False, noticed=True))
        self._nodes: list[Any] = []
        self.complete()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stack.close()

    @property
    def address(self) -> str:
        return str(self._cluster.address)

    def complete(self) -> None:
        """Put new nodes in the place of dead ones."""
        while len(self._nodes) < 2:
            self._nodes.append(self._cluster.add_node(num_cpus=1))

    def kill_node(self) -> None:
        """End a node's processes all at once."""
        self._cluster.remove_node(self._nodes.pop(0), allow_graceful=False)

    def actors(self) -> list[int]:
        """The client actors' processes."""
        return client_actors(os.getpid())
