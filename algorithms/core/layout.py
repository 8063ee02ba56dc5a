"""A model's state as flat vectors, and the position of each entry in them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from algorithms.core.entries import Entry, Kind, entries_of
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
