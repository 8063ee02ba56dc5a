"""Bytes that were measured, as against the protocol's: what Ray moved, and what the driver held."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
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
    if isinstance(value, (list, tuple)):
        return sum(array_bytes(item) for item in value)
    if isinstance(value, Mapping):
        return sum(array_bytes(item) for item in value.values())
    if is_dataclass(value) and not isinstance(value, type):
        return sum(array_bytes(getattr(value, field.name)) for field in fields(value))
    return 0
