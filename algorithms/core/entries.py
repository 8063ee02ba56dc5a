"""Entries of a model's state, and the kind of layer that owns each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from math import prod
from typing import TYPE_CHECKING

from algorithms.core.batch_norm import is_batch_norm, is_frozen
from algorithms.core.head import ModelPart, head_layers, is_within

if TYPE_CHECKING:
    import torch
    from torch import nn


class Kind(Enum):
    """Kind of an entry, by the type of the layer that owns it."""

    WEIGHT = "weight"
    AFFINE = "batch-norm affine"
    STATISTIC = "batch-norm statistic"
    BUFFER = "buffer"
    SLOT = "beside the model"
    OWN = "of a user's client update"
    SECOND = "of the client's second model"


SECOND_MODEL = "own"
"""Slot that holds a second model, with an entry for each of the model's."""

PERSONAL = "personal/"
"""Beginning of the names of buffers that hold a client's tensors for a client update of the user's own."""


@dataclass(frozen=True)
class Entry:
    """One entry of a model's state: a parameter or a buffer.

    Args:
        name: name in the module's state.
        shape: shape of the tensor.
        kind: kind of the entry.
        integer: whether it is a counter.
        frozen: whether it never changes and is never sent.
        head: whether it belongs to the model's head; see `algorithms.core.head`.
        start: first value of a personal number beside the model; None for other entries.
    """

    name: str
    shape: tuple[int, ...]
    kind: Kind
    integer: bool = False
    frozen: bool = False
    head: bool = False
    start: float | None = None

    @property
    def size(self) -> int:
        return prod(self.shape)

    @property
    def is_parameter(self) -> bool:
        """Whether client updates train it: a parameter that is not frozen."""
        return not self.frozen and self.kind in (Kind.WEIGHT, Kind.AFFINE)

    def is_in(self, part: ModelPart) -> bool:
        """Return whether it belongs to a part of the model."""
        return part == "all" or self.head == (part == "head")


def entries_of(module: nn.Module) -> Iterator[tuple[Entry, torch.Tensor]]:
    """Yield each entry of a module with its tensor; tied tensors come once."""
    seen: set[int] = set()
    saved, heads = module.state_dict(keep_vars=True), head_layers(module)
    for prefix, layer in module.named_modules():
        for name, tensor in (*layer._parameters.items(), *layer._buffers.items()):
            path = f"{prefix}.{name}" if prefix else name
            if tensor is None or path not in saved or id(tensor) in seen:
                continue
            seen.add(id(tensor))
            shape, kind, integer = tuple(tensor.shape), _kind(layer, name, tensor), not tensor.is_floating_point()
            yield Entry(path, shape, kind, integer, is_frozen(layer, name), is_within(path, heads)), tensor


def _kind(layer: nn.Module, name: str, tensor: torch.Tensor) -> Kind:
    from torch import nn

    if name.startswith(PERSONAL):
        return Kind.OWN

    parameter = isinstance(tensor, nn.Parameter)
    if is_batch_norm(layer):
        return Kind.AFFINE if parameter else Kind.STATISTIC
    return Kind.WEIGHT if parameter else Kind.BUFFER
