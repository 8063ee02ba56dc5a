"""Bytes that were measured, as against the protocol's: what Ray moved, and what the driver held."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cache
from typing import Any

import numpy as np

INLINE_LIMIT = 100 * 1024
"""Below this size Ray puts a returned object into its message, and so into the driver's memory."""


@dataclass
class Traffic:
    """Bytes of array data, counted from the start of a run.

    Args:
        driver: that the driver held: values that it put, and values of blocks that it took.
        inlined: of objects that blocks left behind, small enough that Ray inlined them on the way.
        moved: that actors took from the object store.
    """

    driver: int = 0
    inlined: int = 0
    moved: int = 0

    def copy(self) -> Traffic:
        """The count as it is now."""
        return replace(self)

    def since(self, before: Traffic) -> Traffic:
        """What was added since an earlier count."""
        return Traffic(self.driver - before.driver, self.inlined - before.inlined, self.moved - before.moved)


def array_bytes(value: Any) -> int:
    """The bytes of all arrays in a value made of dataclasses and containers."""
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
    """The fields of a dataclass; in anything else there is no array."""
    return tuple(field.name for field in fields(kind)) if is_dataclass(kind) else ()
