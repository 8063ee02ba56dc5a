"""Bytes that were measured, as against the protocol's: what Ray moved, and what the driver held."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import ray

INLINE_LIMIT = 100 * 1024
"""Below this size Ray puts a returned object into its message, and so into the driver's memory."""


@dataclass
class Traffic:
    """Bytes of array data, counted from the start of a run.

    Args:
        driver: that the driver held: values that it put, and values of blocks that it took.
        inlined: of objects that blocks left behind, small enough that Ray inlined them on the way.
        moved: that actors took from the object store.
        out: that went from one node to another, by the node that they left.
        into: the same, by the node that they came to.
    """

    driver: int = 0
    inlined: int = 0
    moved: int = 0
    out: Counter[str] = field(default_factory=Counter)
    into: Counter[str] = field(default_factory=Counter)

    @property
    def crossed(self) -> int:
        """Those that went from one node to another, the driver's included."""
        return self.into.total()

    def went(self, source: str, target: str, nbytes: int) -> None:
        """Count what went from a node to a node, which may be the same."""
        if source != target and nbytes:
            self.out[source] += nbytes
            self.into[target] += nbytes

    def copy(self) -> Traffic:
        """The count as it is now."""
        return replace(self, out=self.out.copy(), into=self.into.copy())

    def since(self, before: Traffic) -> Traffic:
        """What was added since an earlier count."""
        return Traffic(
            self.driver - before.driver,
            self.inlined - before.inlined,
            self.moved - before.moved,
            self.out - before.out,
            self.into - before.into,
        )

    def by_node(self) -> dict[str, dict[str, int]]:
        """Bytes in and out of each node that any went in or out of."""
        nodes = sorted({*self.into, *self.out})
        return {node: {"bytes_in": self.into[node], "bytes_out": self.out[node]} for node in nodes}


@dataclass(eq=False)
class Held:
    """A value of the driver's, in the object store once an actor needed it, and from there once on each node."""

    value: Any
    _object: Any = None
    _hosts: set[str] = field(default_factory=set)

    def object(self) -> Any:
        """The value in the object store."""
        if self._object is None:
            self._object = ray.put(self.value)
        return self._object

    def taken(self, host: str, home: str, traffic: Traffic) -> None:
        """Count what an actor on a node causes by taking it; the driver is at home."""
        if host not in self._hosts:
            self._hosts.add(host)
            traffic.went(home, host, array_bytes(self.value))


@dataclass(eq=False)
class Left:
    """What an actor left on its node: a model on its way, or a sum that is to be joined there.

    Small ones are no objects of a node's store: their bytes come to the driver, and go from there with each call.

    Args:
        reference: Ray's.
        nbytes: its size.
        host: the node where it was made.
    """

    reference: Any
    nbytes: int
    host: str
    _hosts: set[str] = field(default_factory=set)

    @property
    def inlined(self) -> bool:
        """Whether Ray put it into its message."""
        return self.nbytes < INLINE_LIMIT

    def object(self) -> Any:
        """The value in the object store, or the driver's memory."""
        return self.reference

    def made(self, home: str, traffic: Traffic) -> None:
        """Count what its making caused; the driver is at home."""
        self._hosts.add(self.host)
        if self.inlined:
            traffic.went(self.host, home, self.nbytes)

    def taken(self, host: str, home: str, traffic: Traffic) -> None:
        """Count what an actor on a node causes by taking it; the driver is at home."""
        if self.inlined:
            traffic.went(home, host, self.nbytes)
        elif host not in self._hosts:
            self._hosts.add(host)
            traffic.went(self.host, host, self.nbytes)


Stored = Held | Left
"""A reference of the Ray fleet's: what a block takes."""


def array_bytes(value: Any) -> int:
    """The bytes of all arrays in a value made of dataclasses and containers.

    But not of fields with an underscore: they are a process's own, and not sent.
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
"""What has no array in it: most of what thousands of visits report."""


@cache
def _fields(kind: Any) -> tuple[str, ...]:
    """The fields of a dataclass but its private ones, which do not travel; in anything else there is no array."""
    return tuple(field.name for field in fields(kind) if field.name[0] != "_") if is_dataclass(kind) else ()
