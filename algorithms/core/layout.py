"""A model's state as flat vectors, and the position of each entry in them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from algorithms.core.entries import SECOND_MODEL, Entry, Kind, entries_of
from algorithms.core.errors import InputError

if TYPE_CHECKING:
    import torch
    from torch import nn


# Each entry starts at a multiple of this many elements. Matrix products may add in another order if an operand is not
# aligned to 64 bytes, and all resident models must compute equal bytes.
ALIGNMENT = 16

Floats: TypeAlias = NDArray[np.floating[Any]]
"""Floating entries: float32, or float64 under `precision = "fp64"`."""

FLOATING = ("float32", "float64")
"""Types that the floating entries of a model may have."""

Memory = Mapping[str, NDArray[np.float64]]
"""Arrays that a part or an option remembers from round to round, by name; empty at first."""


@dataclass(frozen=True)
class Packed:
    """Values of a layout's entries, as they are loaded, sent, summed and saved.

    Args:
        floats: floating entries, [layout.floats] of the layout's type, padded to the alignment.
        integers: integer entries (counters), int64 [layout.integers].
    """

    floats: Floats
    integers: NDArray[np.int64]

    @property
    def nbytes(self) -> int:
        return self.floats.nbytes + self.integers.nbytes

    def copy(self) -> Packed:
        """Return a copy in memory of its own."""
        return Packed(self.floats.copy(), self.integers.copy())


@dataclass(frozen=True)
class Layout:
    """Order and positions of some entries in a `Packed`.

    Args:
        entries: entries in their order.
        floating: type of the floating entries, "float32" or "float64".
    """

    entries: tuple[Entry, ...]
    floating: str = "float32"
    floats: int = field(init=False)
    integers: int = field(init=False)
    _starts: tuple[int, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        ends = {False: 0, True: 0}
        starts = []
        for entry in self.entries:
            starts.append(ends[entry.integer])
            ends[entry.integer] += -(-entry.size // ALIGNMENT) * ALIGNMENT
        object.__setattr__(self, "_starts", tuple(starts))
        object.__setattr__(self, "floats", ends[False])
        object.__setattr__(self, "integers", ends[True])

    @classmethod
    def of(cls, module: nn.Module) -> Layout:
        """Return the layout of all entries of a module; tied entries stand once.

        Raises:
            InputError: an entry is neither int64 nor of the model's floating type, float32 or float64.
        """
        found = list(entries_of(module))
        floating = next((_type(t) for _, t in found if t.is_floating_point()), FLOATING[0])
        for entry, tensor in found:
            if _type(tensor) != ("int64" if entry.integer else floating) or floating not in FLOATING:
                raise InputError(
                    f"model entry {entry.name} = {tensor.dtype}: must be int64, or float32 or float64 like all others; "
                    "convert it in the model"
                )
        return cls(tuple(entry for entry, _ in found), floating)

    def only(self, wanted: Callable[[Entry], bool]) -> Layout:
        """Return the layout of the wanted entries, in this order."""
        return Layout(tuple(entry for entry in self.entries if wanted(entry)), self.floating)

    @cached_property
    def nbytes(self) -> int:
        """Bytes of the entries on a wire, without padding."""
        return sum(entry.size * (8 if entry.integer else np.dtype(self.floating).itemsize) for entry in self.entries)

    def places(self) -> Iterator[tuple[Entry, slice]]:
        """Yield each entry with its slice of the vector of its type."""
        for entry, start in zip(self.entries, self._starts, strict=True):
            yield entry, slice(start, start + entry.size)

    @cached_property
    def parameters(self) -> NDArray[np.bool_]:
        """Whether each floating value of a model belongs to a parameter, [floats]."""
        found = np.zeros(self.floats, bool)
        for entry, place in self.places():
            if entry.is_parameter:
                found[place] = True
        return found

    def pack(self, values: Mapping[str, torch.Tensor]) -> Packed:
        """Copy named tensors (a module's state) into vectors, also as a second model; slots have their first value."""
        packed = Packed(np.zeros(self.floats, self.floating), np.zeros(self.integers, np.int64))
        for entry, place in self.places():
            vector = packed.integers if entry.integer else packed.floats
            if entry.kind is Kind.SLOT:
                vector[place] = entry.start or 0
                continue
            name = entry.name.partition("/")[2] if entry.kind is Kind.SECOND else entry.name
            vector[place] = values[name].detach().cpu().numpy().ravel()
        return packed

    def unpack(self, packed: Packed) -> dict[str, Floats | NDArray[np.int64]]:
        """Return the named arrays of the entries, as views."""
        return {
            entry.name: (packed.integers if entry.integer else packed.floats)[place].reshape(entry.shape)
            for entry, place in self.places()
        }


def _type(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


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
