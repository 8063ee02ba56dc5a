"""A model's entries, divided into shared, personal and frozen ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from algorithms.core.entries import SECOND_MODEL, Entry, Kind
from algorithms.core.layout import Layout, Packed

Scope = Literal["shared", "personal"]

BESIDE = (Kind.SLOT, Kind.OWN, Kind.SECOND)
"""Kinds of entries that are no part of the model."""

SHARE = "share/value"
"""Personal number: share of the second model in the client's own model; without it 1."""

COUNTERS = {"batches": "batches/updates", "steps": "steps/taken"}
"""Entry of each slot that is a counter."""

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
        """Whether personal state holds entries of the model, or a second one, not only values beside it."""
        return any(entry.kind not in BESIDE or entry.kind is Kind.SECOND for entry in self.personal.entries)

    def own_model(self, shared: Packed, personal: Packed) -> Packed:
        """Return the shared entries of a client's own model: share x second model + (1 - share) x model.

        Statistics and counters are the second model's. Without a second model nothing changes.
        """
        if not any(entry.kind is Kind.SECOND for entry in self.personal.entries):
            return shared
        own, kept = shared.copy(), self.personal.unpack(personal)
        for entry, value in zip(self.shared.entries, self.shared.unpack(own).values(), strict=True):
            value[...] = of_client(entry, value, kept)
        return own

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


def of_client(entry: Entry, value: NDArray[Any], kept: Mapping[str, NDArray[Any]]) -> NDArray[Any]:
    """Return an entry of a client's own model; see `Layouts.own_model`.

    Args:
        entry: entry of the model.
        value: its value in the global model.
        kept: the client's personal state, by name.
    """
    second = kept.get(f"{SECOND_MODEL}/{entry.name}", kept.get(entry.name))
    share = kept.get(SHARE, np.ones(()))
    if second is None or not entry.is_parameter or share == 1:
        return value if second is None else second
    mixed: NDArray[Any] = share * second + (1 - share) * value
    return mixed


def divided(
    layout: Layout, slots: Mapping[str, Scope | float], is_personal: Callable[[Entry], bool] = lambda _: True
) -> Layouts:
    """Divide a model's entries.

    Args:
        layout: entries of the model.
        slots: scope of each slot, or the number that a personal slot of one number starts at.
        is_personal: whether an entry that trains stays with the client.
    """
    beside = [entry for slot, scope in slots.items() for entry in _slot(slot, scope, layout)]
    whole = Layout((*layout.entries, *beside), layout.floating)
    return Layouts(
        whole.only(lambda e: not (e.frozen or is_personal(e))),
        whole.only(lambda e: not e.frozen and is_personal(e)),
        whole.only(lambda e: e.frozen),
    )


def _slot(slot: str, scope: Scope | float, layout: Layout) -> list[Entry]:
    """Return the entries of a slot: a number, a second model, or one for each parameter."""
    if isinstance(scope, float):
        return [Entry(f"{slot}/value", (), Kind.SLOT, start=scope)]
    if slot == SECOND_MODEL:
        live = (entry for entry in layout.entries if not entry.frozen and entry.kind is not Kind.OWN)
        return [Entry(f"{slot}/{e.name}", e.shape, Kind.SECOND, e.integer) for e in live]
    if slot in COUNTERS:
        return [Entry(COUNTERS[slot], (), Kind.SLOT, integer=True)]
    return [Entry(f"{slot}/{e.name}", e.shape, Kind.SLOT) for e in layout.entries if e.is_parameter]
