"""Measured bytes: data that Ray moved and data that the driver held, apart from the bytes of the protocol."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, fields, is_dataclass
from functools import cache
from typing import Any

import numpy as np

INLINE_LIMIT = 100 * 1024
"""Size in bytes below which Ray inlines a returned object in its message, and thus in the driver's memory."""

TRAFFIC = ("driver", "inlined", "moved", "crossed")
"""Counts of `Traffic` that have columns `machine_bytes_*` of their own."""


@dataclass
class Traffic:
    """Bytes of array data since the start of a run.

    Args:
        driver: bytes that the driver held: values that it put, and values of blocks that it received.
        inlined: bytes of objects that blocks left behind and Ray inlined.
        moved: bytes that actors took from the object store.
        out: bytes that left each node for another one, by node id.
        into: bytes that reached each node from another one, by node id.
    """

    driver: int = 0
    inlined: int = 0
    moved: int = 0
    out: Counter[str] = field(default_factory=Counter)
    into: Counter[str] = field(default_factory=Counter)

    @property
    def crossed(self) -> int:
        """Bytes that went from one node to another, the driver's node included."""
        return self.into.total()

    def went(self, source: str, target: str, nbytes: int) -> None:
        """Count a transfer between two nodes; ignore one within a node."""
        if source != target and nbytes:
            self.out[source] += nbytes
            self.into[target] += nbytes

    def by_node(self) -> dict[str, dict[str, int]]:
        """Return bytes in and out of each node that had any."""
        nodes = sorted({*self.into, *self.out})
        return {node: {"bytes_in": self.into[node], "bytes_out": self.out[node]} for node in nodes}


@dataclass(eq=False)
class StoredValue:
    """Value that blocks take by reference: the driver's own, or one that an actor made and that stays on its node.

    A value of the driver enters the object store when the first actor needs it; each node then fetches it once. A small
    value of an actor is inlined: its bytes come to the driver, and go out again with each call.

    Args:
        nbytes: size of its arrays.
        value: the value itself, if it is the driver's.
        reference: Ray's reference, if an actor made it.
        host: node of that actor; None for the driver's.
    """

    nbytes: int
    value: Any = None
    reference: Any = None
    host: str | None = None
    _hosts: set[str] = field(default_factory=set)

    @property
    def inlined(self) -> bool:
        """Whether Ray inlined it in a message."""
        return self.host is not None and self.nbytes < INLINE_LIMIT

    def object(self) -> Any:
        """Return Ray's reference; put a value of the driver into the object store first."""
        import ray  # late, because a run in this process only counts bytes here

        if self.reference is None:
            self.reference = ray.put(self.value)
        return self.reference

    def made(self, home: str, traffic: Traffic) -> None:
        """Count the transfer that its making caused; `home` is the driver's node."""
        if self.host is not None:
            self._hosts.add(self.host)
            if self.inlined:
                traffic.went(self.host, home, self.nbytes)

    def taken(self, host: str, home: str, traffic: Traffic) -> None:
        """Count the transfer that an actor on a node causes by taking it; `home` is the driver's node."""
        if self.inlined:
            traffic.went(home, host, self.nbytes)
        elif host not in self._hosts:
            self._hosts.add(host)
            traffic.went(self.host or home, host, self.nbytes)


def array_bytes(value: Any) -> int:
    """Return the bytes of all arrays in a value made of dataclasses and containers.

    Fields with a leading underscore do not count: they stay in their process.
    """
    if isinstance(value, np.ndarray):
        return value.nbytes
    parts: Iterable[Any]
    if isinstance(value, dict):
        parts = value.values()
    elif isinstance(value, (list, tuple)):
        parts = value
    else:
        kind: Any = type(value)
        parts = [getattr(value, name) for name in _fields(kind)]
    return sum(array_bytes(part) for part in parts if type(part) not in PLAIN)


PLAIN = frozenset({bool, int, float, str, bytes, type(None)})
"""Types without arrays: most values in the reports of thousands of client updates."""


@cache
def _fields(kind: Any) -> tuple[str, ...]:
    """Return the public fields of a dataclass; nothing for any other type, which holds no array."""
    return tuple(field.name for field in fields(kind) if field.name[0] != "_") if is_dataclass(kind) else ()
