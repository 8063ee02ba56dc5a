"""The head of a model: its classifier, a layer or several. All other entries are the body."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from torch import nn

ModelPart: TypeAlias = Literal["all", "head", "body"]
"""Part of a model."""


def mark_head(module: nn.Module, layers: Sequence[str]) -> None:
    """Mark the layers of a module that are its head.

    Args:
        module: module to change.
        layers: names of layers, in the order of the forward pass.
    """
    module.__dict__["head_layers"] = tuple(layers)


def head_layers(module: nn.Module) -> tuple[str, ...]:
    """Return the names of the layers of a module's head; the features are the input of the first one.

    They are the layers that `mark_head` named; else the layer `head`; else the last linear layer or convolution.
    """
    from torch import nn
    from torch.nn.modules.conv import _ConvNd

    marked: tuple[str, ...] | None = module.__dict__.get("head_layers")
    if marked is not None:
        return marked
    own = module._modules.get("head")
    if own is not None and any(True for _ in own.parameters()):
        return ("head",)
    return tuple([name for name, layer in module.named_modules() if isinstance(layer, (nn.Linear, _ConvNd))][-1:])


def is_within(entry: str, layers: Sequence[str]) -> bool:
    """Return whether an entry belongs to one of some layers; "" is the whole module."""
    return any(not layer or f"{entry}.".startswith(f"{layer}.") for layer in layers)
