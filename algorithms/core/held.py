"""State that a user's own code keeps on itself, where neither checkpoints nor other actors see it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache, cached_property
from types import MethodType, NoneType
from typing import Any
from zlib import crc32

import numpy as np

SIMPLE = (str, bytes, int, NoneType)
"""Classes of values that are compared as they are."""

LARGE = 2**20
"""Bytes from which a tensor is compared by its identity and number of writes, and an array by its identity."""

MOST = 10_000
"""Largest number of elements of a list or a dictionary that are compared; of a longer one only their number is."""


def held(thing: object) -> dict[str, object]:
    """Return a fingerprint of each attribute of an object and of its class; a change gives another one.

    Cached properties are left out, because they follow from the other attributes.
    """
    owner = thing.__self__ if isinstance(thing, MethodType) else thing
    of_class = {name: value for kind in reversed(type(owner).__mro__) for name, value in vars(kind).items()}
    shared = {name: value for name, value in of_class.items() if not hasattr(value, "__get__")}
    values = _without_cached(type(owner), {**shared, **getattr(owner, "__dict__", {})})
    return {
        name: _Walk().fingerprint(value, (id(owner),)) for name, value in values.items() if not name.startswith("__")
    }


def _without_cached(kind: type, values: dict[Any, Any]) -> dict[Any, Any]:
    """Return values by name without the cached properties of a class."""
    return {name: value for name, value in values.items() if name not in _cached(kind)}


@cache
def _cached(kind: type) -> frozenset[str]:
    properties = (
        name for each in kind.__mro__ for name, value in vars(each).items() if isinstance(value, cached_property)
    )
    return frozenset(properties)


@dataclass(frozen=True)
class _Walk:
    """Walk through one attribute.

    Args:
        lasting: identities of the attributes of objects whose state is made anew for each walk.
    """

    lasting: set[int] = field(default_factory=set)

    def fingerprint(
        self, value: Any, above: tuple[int, ...] = (), is_made: bool = False, are_parts_made: bool = False
    ) -> object:
        """Return a value that a change makes differ; the identity of an object that cannot be taken apart.

        Args:
            value: any object.
            above: identities of the objects that contain it.
            is_made: whether the object was made for this walk, so that its identity says nothing.
            are_parts_made: whether its parts were, too.
        """
        if isinstance(value, SIMPLE):
            return value
        if id(value) in above or isinstance(value, type):
            return id(value)
        if id(value) in self.lasting:
            is_made = are_parts_made = False
        torch = sys.modules.get("torch")  # a file is checked without it
        try:
            if torch is not None and isinstance(value, torch.Tensor):
                if value.nbytes > LARGE:
                    return value.shape if is_made else id(value), value._version
                return value.shape, crc32(value.detach().cpu().flatten().view(torch.uint8).numpy().data)
            if isinstance(value, float | complex):
                return repr(value)  # NaN differs from itself
            if isinstance(value, list | tuple | dict) and len(value) > MOST:
                return type(value) if is_made else id(value), len(value)
            if isinstance(value, np.ndarray) and value.nbytes > LARGE:
                return (type(value), value.shape) if is_made else id(value)
            parts = [] if isinstance(value, list | tuple) else _parts(value)
        except Exception:  # A user's object may raise anything.
            return id(value)
        above = (*above, id(value))
        if isinstance(value, list | tuple):
            return type(value), [self.fingerprint(part, above, are_parts_made, are_parts_made) for part in value]
        if not _is_plain(type(value)) and not is_made:
            self.lasting.update(map(id, getattr(value, "__dict__", {}).values()))
        return type(value), [self.fingerprint(part, above, True, are_parts_made or is_new) for part, is_new in parts]


def _parts(value: object) -> list[tuple[object, bool]]:
    """Return the parts of which a copy of an object is made, and whether the elements of each may be new objects."""
    reduced = value.__reduce_ex__(4)
    if isinstance(reduced, str):
        return [(reduced, False)]
    is_new = not _is_plain(type(value))
    parts = [(list(part), False) if isinstance(part, Iterator) else (part, is_new) for part in reduced[1:]]
    return [(_without_cached(type(value), part) if isinstance(part, dict) else part, new) for part, new in parts]


@cache
def _is_plain(kind: type) -> bool:
    """Return whether a copy of an object is made of its attributes themselves."""
    hooks = ("__reduce_ex__", "__reduce__", "__getstate__")
    return all(getattr(kind, hook, None) is getattr(object, hook, None) for hook in hooks)
