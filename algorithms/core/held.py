"""State that a user's own code keeps on itself, where neither checkpoints nor other actors see it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
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
    return {name: _fingerprint(value, (id(owner),)) for name, value in values.items() if not name.startswith("__")}


def _without_cached(kind: type, values: dict[Any, Any]) -> dict[Any, Any]:
    """Return values by name without the cached properties of a class."""
    return {name: value for name, value in values.items() if name not in _cached(kind)}


@cache
def _cached(kind: type) -> frozenset[str]:
    properties = (
        name for each in kind.__mro__ for name, value in vars(each).items() if isinstance(value, cached_property)
    )
    return frozenset(properties)


def _fingerprint(value: Any, above: tuple[int, ...] = ()) -> object:
    """Return a value that a change makes differ; the identity of an object that cannot be taken apart.

    Args:
        value: any object.
        above: identities of the objects that contain it.
    """
    if isinstance(value, SIMPLE):
        return value
    if id(value) in above or isinstance(value, type):
        return id(value)
    torch = sys.modules.get("torch")  # a file is checked without it
    try:
        if torch is not None and isinstance(value, torch.Tensor):
            if value.nbytes > LARGE:
                return id(value), value._version
            return value.shape, crc32(value.detach().cpu().flatten().view(torch.uint8).numpy().data)
        if isinstance(value, float | complex):
            return repr(value)  # NaN differs from itself
        if isinstance(value, list | tuple | dict) and len(value) > MOST:
            return id(value), len(value)
        if isinstance(value, np.ndarray) and value.nbytes > LARGE:
            return id(value)
        parts = value if isinstance(value, list | tuple) else _parts(value)
    except Exception:  # A user's object may raise anything.
        return id(value)
    return type(value), [_fingerprint(part, (*above, id(value))) for part in parts]


def _parts(value: object) -> list[object]:
    """Return the parts of which a copy of an object is made."""
    reduced = value.__reduce_ex__(4)
    if isinstance(reduced, str):
        return [reduced]
    parts = [list(part) if isinstance(part, Iterator) else part for part in reduced[1:]]
    return [_without_cached(type(value), part) if isinstance(part, dict) else part for part in parts]
