"""Convolutions of a stack of client updates as matrix products, one for all lanes.

`torch.func` maps a convolution over several models as a grouped one, and on a GPU cuDNN runs its groups one after the
other, each too small to fill it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.nn.functional import conv2d, fold, pad

from algorithms.training.folding import has_hooks

Tensor = torch.Tensor
Sizes = tuple[int, ...]


class Product(torch.autograd.Function):
    """Convolution of images [n, c, h, w] with a weight [out, c, kh, kw], without dilation: y = W columns(x)."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, weight: Tensor, stride: Sizes, padding: Sizes) -> Tensor:
        columns, places = _columns(x, weight, stride, padding)
        return (weight.flatten(1) @ columns).view(len(weight), len(x), *places).transpose(0, 1)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        x, weight, *ctx.form = inputs
        ctx.save_for_backward(x, weight)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor | None, None, None]:
        (x, weight), (stride, padding) = ctx.saved_tensors, ctx.form
        above = gradients[0].transpose(0, 1).flatten(1)
        # Columns take many times the memory of the images, so make them again.
        below, weights = None, None
        if ctx.needs_input_grad[1]:
            weights = (above @ _columns(x, weight, stride, padding)[0].mT).view_as(weight)
        if ctx.needs_input_grad[0]:
            columns = (weight.flatten(1).mT @ above).view(weight[0].numel(), len(x), -1).transpose(0, 1)
            below = fold(columns, x.shape[2:], weight.shape[2:], padding=padding, stride=stride)
        return below, weights, None, None


def _columns(x: Tensor, weight: Tensor, stride: Sizes, padding: Sizes) -> tuple[Tensor, Sequence[int]]:
    """Return the windows of images as columns, [c kh kw, n places], and the height and width of the places."""
    (kh, kw), (top, left) = weight.shape[2:], padding
    windows = pad(x, (left, left, top, top)).unfold(2, kh, stride[0]).unfold(3, kw, stride[1])
    return windows.permute(1, 4, 5, 0, 2, 3).reshape(weight[0].numel(), -1), windows.shape[2:4]


def convolutions(module: nn.Module) -> list[nn.Conv2d]:
    """Return the convolutions of a model that can be such products."""
    found = [layer for layer in module.modules() if type(layer) is nn.Conv2d and not has_hooks(layer)]
    return [
        layer
        for layer in found
        if layer.groups == 1
        and layer.dilation == (1, 1)
        and layer.padding_mode == "zeros"
        and not isinstance(layer.padding, str)
    ]


@contextmanager
def as_products(layers: Sequence[nn.Conv2d]) -> Iterator[None]:
    """Compute some convolutions as products in the context."""
    for layer in layers:
        assert not isinstance(layer.padding, str)
        vars(layer)["_conv_forward"] = partial(_forward, layer.stride, layer.padding)
    try:
        yield
    finally:
        for layer in layers:
            del vars(layer)["_conv_forward"]


def _forward(stride: Sizes, padding: Sizes, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    if x.dim() != 4:
        return conv2d(x, weight, bias, stride, padding)
    if torch.is_autocast_enabled(x.device.type):
        x, weight = (each.to(torch.get_autocast_dtype(x.device.type)) for each in (x, weight))
    y: Tensor = Product.apply(x, weight, stride, padding)
    return y if bias is None else y + bias.to(y.dtype).view(-1, 1, 1)
