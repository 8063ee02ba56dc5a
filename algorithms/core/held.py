"""State that a user's own code keeps on itself, where neither checkpoints nor other actors see it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache, cached_property
from types import MemberDescriptorType, MethodType, NoneType
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np

SIMPLE = (str, bytes, int, NoneType)
"""Classes of values that are compared as they are."""

LARGE = 2**20
"""Bytes from which a tensor is compared by its identity and number of writes, and an array by its identity."""

MOST = 10_000
"""Largest number of elements of a list or a dictionary that are compared; of a longer one only their number is."""

MODULE = "torch.nn.modules.module.Module"
"""Class of torch modules; a file is checked without torch."""


def held(thing: object) -> dict[str, object]:
    """Return a fingerprint of each attribute of an object and of its class; a change gives another one.

    Cached properties are left out, because they follow from the other attributes, and so is the mode of a torch module.
    """
    owner = thing.__self__ if isinstance(thing, MethodType) else thing
    of_class = {name: value for kind in reversed(type(owner).__mro__) for name, value in vars(kind).items()}
    shared = {name: value for name, value in of_class.items() if not hasattr(value, "__get__")}
    slots = [name for name, value in of_class.items() if isinstance(value, MemberDescriptorType)]
    of_slots = {name: getattr(owner, name) for name in slots if hasattr(owner, name)}
    values = _state(type(owner), {**shared, **of_slots, **getattr(owner, "__dict__", {})})
    named = {name: value for name, value in values.items() if not name.startswith("__")}
    return {name: _Walk({id(owner): (0, owner)}).fingerprint(value) for name, value in named.items()}


def _state(kind: type, values: dict[Any, Any]) -> dict[Any, Any]:
    """Return values by name without those that are no state of a class."""
    return {name: value for name, value in values.items() if name not in _not_state(kind)}


@cache
def _not_state(kind: type) -> frozenset[str]:
    """Return the names of the cached properties of a class, and of the mode of a torch module."""
    properties = (
        name for each in kind.__mro__ for name, value in vars(each).items() if isinstance(value, cached_property)
    )
    is_module = any(f"{each.__module__}.{each.__qualname__}" == MODULE for each in kind.__mro__)
    return frozenset(properties) | ({"training"} if is_module else frozenset())


class _Part(NamedTuple):
    """Object that a walk visits.

    Args:
        value: object.
        is_made: whether it was made for this walk, so that its identity says nothing.
        are_parts_made: whether its parts were, too.
    """

    value: Any
    is_made: bool = False
    are_parts_made: bool = False


@dataclass(frozen=True)
class _Walk:
    """Walk through one attribute.

    Args:
        visits: number of the visit of each object by its identity, and the object, which keeps its identity its own.
        lasting: identities of the attributes of objects whose state is made anew for each walk.
    """

    visits: dict[int, tuple[int, object]]
    lasting: set[int] = field(default_factory=set)

    def fingerprint(self, value: object) -> list[object]:
        """Return a value that a change of an object makes differ: one entry for each of its parts, depth first."""
        found: list[object] = []
        waiting = [_Part(value)]
        while waiting:
            entry, parts = self._taken(waiting.pop())
            found.append((entry, len(parts)))
            waiting += reversed(parts)
        return found

    def _taken(self, part: _Part) -> tuple[object, list[_Part]]:
        """Return an entry for an object, and its parts; its identity if it cannot be taken apart."""
        value = part.value
        if id(value) in self.visits:
            return ("visit", self.visits[id(value)][0]), []
        if id(value) in self.lasting:
            part = _Part(value)
        try:
            if (entry := _entry(part)) is not None:
                return entry, []
            parts = [] if isinstance(value, list | tuple) else _parts(value, part.are_parts_made)
        except Exception:  # A user's object may raise anything.
            return (id(value),), []
        if not _is_constant(value):
            self.visits[id(value)] = len(self.visits), value
        if isinstance(value, list | tuple):
            return type(value), [_Part(each, part.are_parts_made, part.are_parts_made) for each in value]
        if not part.is_made and not _is_plain(type(value)):
            self.lasting.update(map(id, getattr(value, "__dict__", {}).values()))
        return type(value), parts


def _entry(part: _Part) -> tuple[object, ...] | None:
    """Return an entry for an object that is compared as a whole; None if its parts are compared."""
    value, is_made = part.value, part.is_made
    if isinstance(value, SIMPLE):
        return (value,)
    if isinstance(value, type):
        return (id(value),)
    torch = sys.modules.get("torch")  # a file is checked without it
    if torch is not None and isinstance(value, torch.Tensor):
        if value.nbytes > LARGE:
            return value.shape if is_made else id(value), value._version
        return value.shape, crc32(value.detach().cpu().flatten().view(torch.uint8).numpy().data)
    if isinstance(value, float | complex):
        return (repr(value),)  # NaN differs from itself
    if isinstance(value, list | tuple | dict) and len(value) > MOST:
        return type(value) if is_made else id(value), len(value)
    if isinstance(value, np.ndarray) and value.nbytes > LARGE:
        return (type(value), value.shape) if is_made else (id(value),)
    return None


def _is_constant(value: object) -> bool:
    """Return whether an equal object may take the place of an object unnoticed: it cannot contain itself either."""
    is_plain_array = isinstance(value, np.ndarray) and not value.dtype.hasobject
    return is_plain_array or isinstance(value, tuple | np.generic | np.dtype)


def _parts(value: object, are_made: bool) -> list[_Part]:
    """Return the parts of which a copy of an object is made.

    Args:
        value: any object.
        are_made: whether the elements of its parts were made for this walk in any case.
    """
    reduced = value.__reduce_ex__(4)
    if isinstance(reduced, str):
        return [_Part(reduced)]
    are_made_here = are_made or not _is_plain(type(value))
    parts = []
    for part in reduced[1:]:
        if isinstance(part, Iterator):
            parts.append(_Part(list(part), True, are_made))
        else:
            kept = _state(type(value), part) if isinstance(part, dict) else part
            parts.append(_Part(kept, True, are_made_here))
    return parts


def _is_plain(kind: type[Any]) -> bool:
    """Return whether a copy of an object is made of its attributes themselves."""
    hooks = ("__reduce_ex__", "__reduce__", "__getstate__")
    return all(getattr(kind, hook, None) is getattr(object, hook, None) for hook in hooks)
