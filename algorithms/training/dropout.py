"""Dropout with keyed masks, equal in every execution and beside any neighbours."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from functools import partial

import torch
from torch import nn
from torch.func import functional_call
from torch.nn.modules.dropout import _DropoutNd

from algorithms.core.errors import InputError
from algorithms.training.forked import drawn, forked
from algorithms.training.loss import known
from algorithms.training.work import Work

WHOLE_CHANNELS = (nn.Dropout1d, nn.Dropout2d, nn.Dropout3d)
KEYED = (nn.Dropout, *WHOLE_CHANNELS)
"""Kinds of dropout whose masks can be drawn from a key."""


class KeyedDropout(nn.Module):
    """Dropout by a given mask: x <- x mask in training. The trainer draws the mask, with values 0 or 1 / (1 - p)."""

    mask: torch.Tensor

    def __init__(self, p: float, whole_channels: bool) -> None:
        super().__init__()
        self.p = p
        self.whole_channels = whole_channels
        self.register_buffer("mask", torch.ones(()), persistent=False)

    def forward(self, input: torch.Tensor) -> torch.Tensor:  # the name that torch's layers have
        return input * self.mask if self.training else input


class OrderedDropout(KeyedDropout):
    """Ordered dropout: keep the first channels, as many in all layers of a model in a step.

    Args:
        kept: numbers of channels of which each step draws one.
    """

    def __init__(self, kept: Sequence[int]) -> None:
        super().__init__(0.0, whole_channels=True)
        self.kept = tuple(kept)


class ClassMask(KeyedDropout):
    """Outputs of the classes of a client's samples; those of all other classes are 0 in training."""

    def __init__(self) -> None:
        super().__init__(0.0, whole_channels=True)

    def fill(self, mask: torch.Tensor, y: torch.Tensor) -> None:
        """Write the mask of one client update, [rows, classes, ...], by all its labels."""
        mask.zero_()[:, y if y.dim() == 1 else y[known(y)].long()] = 1


def keyed(module: nn.Module) -> nn.Module:
    """Replace the module's dropout layers by keyed ones, and return the module; a layer used twice becomes two.

    Raises:
        InputError: the masks of a kind of dropout cannot be drawn from a key, or a layer has a `forward` of its own.
    """
    for parent in list(module.modules()):
        for name, layer in list(parent._modules.items()):
            if not isinstance(layer, _DropoutNd):
                continue
            if not any(isinstance(layer, kind) and type(layer).forward is kind.forward for kind in KEYED):
                raise InputError(
                    f"model layer {name} = {type(layer).__name__}: must be Dropout, Dropout1d, Dropout2d or "
                    "Dropout3d, which can be keyed; use one of them, or derive the layer from torch.nn.Module"
                )
            parent._modules[name] = KeyedDropout(layer.p, isinstance(layer, WHOLE_CHANNELS))
    return module


@torch.no_grad()
def draws(module: nn.Module, sample: torch.Tensor) -> bool:
    """Return whether a module with keyed dropout still draws from a default generator in training.

    Args:
        module: model; left unchanged.
        sample: one sample, [*shape]; its values do not matter.
    """
    with forked(0):
        before = drawn()
        deepcopy(module).cpu().train()(torch.stack([sample, sample]).cpu())
        return before != drawn()


def has_dropout(module: nn.Module, sample: torch.Tensor) -> bool:
    """Return whether training needs masks, or a seed for a module that draws random numbers itself.

    Args:
        module: model; left unchanged.
        sample: one sample, [*shape]; its values do not matter.
    """
    return any(isinstance(each, _DropoutNd) for each in module.modules()) or draws(module, sample)


class Masks:
    """Draws of the masks of a model's dropout layers.

    Args:
        module: model with keyed dropout layers.
        sample: one sample, [*shape]; its values do not matter.
    """

    def __init__(self, module: nn.Module, sample: torch.Tensor) -> None:
        layers = {name: layer for name, layer in module.named_modules() if isinstance(layer, KeyedDropout)}
        self._shapes = _input_shapes(module, layers, sample)
        # A layer may lend its share to a function and never be called itself.
        self.layers = {name: layer for name, layer in layers.items() if name in self._shapes}

    def draw(self, works: Sequence[Work], rows: int) -> dict[str, torch.Tensor]:
        """Draw the next step's masks of k client updates, [k, rows, *shape] for each layer, by the buffer's name."""
        masks = {name: works[0].x.new_empty(len(works), rows, *self._shapes[name]) for name in self.layers}
        for lane, work in enumerate(works if masks else ()):
            width: int | None = None
            for name, layer in self.layers.items():
                if isinstance(layer, OrderedDropout):
                    width = _drawn(len(layer.kept), work) if width is None else width
                    masks[name][lane].fill_(1)[:, layer.kept[width] :] = 0
                elif isinstance(layer, ClassMask):
                    layer.fill(masks[name][lane], work.y)
                else:
                    # On a CPU `bernoulli_` takes more than twice as long.
                    masks[name][lane].uniform_(generator=work.masks)
        for name, layer in self.layers.items():
            if type(layer) is KeyedDropout:
                masks[name].lt_(1 - layer.p).div_((1 - layer.p) or 1)
        return {f"{name}.mask": stack for name, stack in masks.items()}


def _drawn(count: int, work: Work) -> int:
    """Draw one of some numbers from a client update's own stream."""
    return int(torch.randint(count, (), generator=work.masks, device=work.x.device))


@torch.no_grad()
def _input_shapes(
    module: nn.Module, layers: dict[str, KeyedDropout], sample: torch.Tensor
) -> dict[str, tuple[int, ...]]:
    """Return the shape of one sample's mask in each layer."""
    shapes: dict[str, tuple[int, ...]] = {}

    def look(name: str, layer: KeyedDropout, inputs: Sequence[torch.Tensor], named: dict[str, torch.Tensor]) -> None:
        if name in shapes:
            raise InputError(
                f"model layer {name} is called twice in a pass: must be called once; use a layer for each call"
            )
        shape = tuple(next(iter((*inputs, *named.values()))).shape[1:])
        shapes[name] = (shape[0], *(1 for _ in shape[1:])) if layer.whole_channels else shape

    hooks = [layer.register_forward_pre_hook(partial(look, name), with_kwargs=True) for name, layer in layers.items()]
    training = module.training
    try:
        if layers:
            # In training, because a model may leave dropout out in evaluation. Batch norm tracks copies.
            tracked = {name: each.clone() for name, each in module.named_buffers()}
            with forked(0, [] if sample.device.type == "cpu" else [sample.device]):
                functional_call(module.train(), tracked, (torch.stack([sample, sample]),))
    finally:
        module.train(training)
        for hook in hooks:
            hook.remove()
    return shapes
