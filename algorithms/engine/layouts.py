"""A model's entries, divided into shared, personal and frozen ones."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from algorithms.engine.entries import Kind
from algorithms.engine.layout import Layout, Packed

BESIDE = (Kind.SLOT, Kind.OWN)
"""Kinds of entries that are no part of the model."""

NO_VALUES = Packed(np.empty(0, np.float32), np.empty(0, np.int64))


@dataclass(frozen=True)
class Layouts:
    """Entries of a model, divided.

    Args:
        shared: entries that travel with the model.
        personal: entries that stay with the client.
        frozen: entries that are never sent, averaged or updated; every module is built with them.
    """

    shared: Layout
    personal: Layout
    frozen: Layout = field(default_factory=lambda: Layout(()))

    @property
    def has_one_model(self) -> bool:
        """Whether all client updates start from equal models: personal state holds only counters."""
        return all(entry.kind is Kind.SLOT and entry.integer for entry in self.personal.entries)

    @property
    def has_own_models(self) -> bool:
        """Whether personal state holds entries of the model, not only values beside it."""
        return any(entry.kind not in BESIDE for entry in self.personal.entries)

    def model(self, shared: Packed, personal: Packed, frozen: Packed = NO_VALUES) -> dict[str, NDArray[Any]]:
        """Return the entries of the module by name, without slots and tensors of a client update."""
        values: dict[str, NDArray[Any]] = {**self.shared.unpack(shared), **self.personal.unpack(personal)}
        changing = {e.name: values[e.name] for e in self.whole.entries if e.kind not in BESIDE}
        return changing | self.frozen.unpack(frozen)

    def begun(self, personal: Packed) -> Packed:
        """Return personal state for a client without one: these values, with the client's counters at 0."""
        integers = personal.integers.copy()
        for entry, place in self.personal.places():
            if entry.kind is Kind.SLOT and entry.integer:
                integers[place] = 0
        return Packed(personal.floats, integers)

    @property
    def whole(self) -> Layout:
        """All entries that client updates may change, shared ones first: the order of a resident model."""
        return Layout(self.shared.entries + self.personal.entries, self.shared.floating)
