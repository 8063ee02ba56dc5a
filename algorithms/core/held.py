"""State that a user's own code keeps on itself, where neither checkpoints nor other actors see it."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, cached_property
from itertools import zip_longest
from types import MemberDescriptorType, MethodType, NoneType
from typing import Any, TypeAlias
from zlib import crc32

import numpy as np

SIMPLE = (str, bytes, int, NoneType)
"""Classes of values that are compared as they are."""

LARGE = 2**20
"""Bytes from which a tensor is compared by its identity and number of writes, and an array by its identity."""

MOST = 10_000
"""Largest number of parts of an attribute that are compared; of an object beyond, only its identity and its length."""

MODULE = "torch.nn.modules.module.Module"
"""Class of torch modules; a file is checked without torch."""

Fingerprint: TypeAlias = Sequence[object]
"""An entry for each of the first `MOST` parts of an attribute, of which a change of such a part makes some differ."""


def held(thing: object) -> dict[str, Fingerprint]:
    """Return a fingerprint of each attribute of an object and of its class; see `changed`.

    Cached properties are left out, because they follow from the other attributes, and so is the mode of a torch module.
    """
    return {name: walk.entries for name, walk in _walks(thing).items()}


def changed(thing: object, before: Mapping[str, Fingerprint]) -> list[str]:
    """Return the names of the attributes that have changed since `held` returned these fingerprints.

    A walk may make an object anew, such as a copy in its owner's `__getstate__`. Its identity says nothing, which
    another walk shows: it finds another one.
    """
    walks = _walks(thing)
    after = {name: walk.entries for name, walk in walks.items()}
    names = [name for name in {**before, **after} if before.get(name) != after.get(name)]
    again = held(thing) if names else {}  # while the objects of the first walk are alive
    return [name for name in names if _differs(*(each.get(name, ()) for each in (before, after, again)))]


def _differs(before: Fingerprint, after: Fingerprint, again: Fingerprint) -> bool:
    """Return whether an entry has changed that two walks agree about."""
    return any(old != new == same for old, new, same in zip_longest(before, after, again))


def _walks(thing: object) -> dict[str, _Walk]:
    owner = thing.__self__ if isinstance(thing, MethodType) else thing
    of_class = {name: value for kind in reversed(type(owner).__mro__) for name, value in vars(kind).items()}
    shared = {name: value for name, value in of_class.items() if not hasattr(value, "__get__")}
    slots = [name for name, value in of_class.items() if isinstance(value, MemberDescriptorType)]
    of_slots = {name: getattr(owner, name) for name in slots if hasattr(owner, name)}
    values = _state(type(owner), {**shared, **of_slots, **getattr(owner, "__dict__", {})})
    return {name: _Walk(value, owner) for name, value in values.items() if not name.startswith("__")}


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


class _Walk:
    """Walk through one attribute; it keeps all objects that it has met, and so their identities.

    Args:
        value: value of the attribute.
        owner: object with the attribute.
    """

    def __init__(self, value: object, owner: object) -> None:
        self.entries: list[object] = []
        self._left = MOST
        self._visits = {id(owner): 0}
        self._met = [owner]
        waiting = deque([value])  # breadth first, so that a large part hides nothing beside it
        while waiting:
            part = waiting.popleft()
            self._met.append(part)
            entry, parts = self._taken(part)
            self.entries.append((entry, len(parts)))
            waiting += parts

    def _taken(self, value: object) -> tuple[object, Sequence[Any]]:
        """Return an entry for an object, and its parts; its identity if it cannot be taken apart."""
        if id(value) in self._visits:
            return ("visit", self._visits[id(value)]), ()
        try:
            if (entry := _entry(value)) is not None:
                return entry, ()
            parts = _parts(value, self._left)
        except Exception:  # A user's object may raise anything.
            return (id(value),), ()
        if not _is_constant(value):
            self._visits[id(value)] = len(self._visits)
        self._left -= len(parts)
        return type(value), parts


def _entry(value: object) -> tuple[object, ...] | None:
    """Return an entry for an object that is compared as a whole; None if its parts are compared."""
    if isinstance(value, SIMPLE):
        return (value,)
    if isinstance(value, type):
        return (id(value),)
    if isinstance(value, float | complex):
        return (repr(value),)  # NaN differs from itself
    torch = sys.modules.get("torch")  # a file is checked without it
    if torch is not None and isinstance(value, torch.Tensor) and value.nbytes <= LARGE:
        return value.shape, crc32(value.detach().cpu().flatten().view(torch.uint8).numpy().data)
    return None


def _is_constant(value: object) -> bool:
    """Return whether an equal object may take the place of an object unnoticed: it cannot contain itself either."""
    is_plain_array = isinstance(value, np.ndarray) and not value.dtype.hasobject
    return is_plain_array or isinstance(value, tuple | np.generic | np.dtype)


def _parts(value: Any, most: int) -> Sequence[Any]:
    """Return the parts of which a copy of an object is made; its identity and its size if they are more than `most`."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        return id(value), value.shape, value._version
    if isinstance(value, np.ndarray) and value.nbytes > LARGE:
        return id(value), value.shape
    if most <= 0 or (isinstance(value, list | tuple | dict) and len(value) > most):
        return id(value), len(value) if hasattr(value, "__len__") else 0
    if isinstance(value, list | tuple):
        return value
    reduced = value.__reduce_ex__(4)
    if isinstance(reduced, str):
        return (reduced,)
    parts = (list(part) if isinstance(part, Iterator) else part for part in reduced[1:])
    # An empty state is the same as none, of which a cached property makes it.
    return [(_state(type(value), part) or None) if isinstance(part, dict) else part for part in parts]
