"""Convolutions that compute a little more: how one is made of another, with the same entries."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch.nn.modules.conv import _ConvNd

from raysim.common.errors import InputError


def convolved(layer: _ConvNd, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """The output of a convolution with other weights."""
    output: torch.Tensor = layer._conv_forward(x, weight, layer.bias)
    return output


def remade(layer: _ConvNd, kinds: Sequence[type[_ConvNd]], what: str) -> _ConvNd:
    """The convolution as the one of these kinds that is a subclass of its class; its entries are the layer's own.

    Args:
        layer: a convolution of torch's, no subclass, for that may compute something else.
        kinds: subclasses of torch's convolutions.
        what: is asked for, for the message.

    Raises:
        InputError: there is no such kind.
    """
    kind: Callable[..., _ConvNd] | None = next((kind for kind in kinds if type(layer) in kind.__bases__), None)
    if kind is None:
        names = ", ".join(base.__name__ for kind in kinds for base in kind.__bases__ if issubclass(base, _ConvNd))
        raise InputError(f"{what}, a {type(layer).__name__}: must be one of {names} itself; choose another norm")
    made = kind(
        layer.in_channels,
        layer.out_channels,
        layer.kernel_size,
        layer.stride,
        layer.padding,
        layer.dilation,
        groups=layer.groups,
        bias=layer.bias is not None,
        padding_mode=layer.padding_mode,
        device="meta",  # it draws no weights, for it gets the layer's
    )
    made.weight, made.bias = layer.weight, layer.bias
    return made
