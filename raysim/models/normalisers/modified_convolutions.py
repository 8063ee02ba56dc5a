"""Convolutions with standardised weights, and a convolution remade as one of a subclass."""

from collections.abc import Callable, Iterable, Sequence

import torch
from torch import nn
from torch.nn.modules.conv import _ConvNd
from torch.utils.hooks import RemovableHandle

from raysim.common.errors import InputError

EPS = 1e-5
"""Addend of each filter's variance."""


def convolve(layer: _ConvNd, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Return the output of a convolution for other weights."""
    output: torch.Tensor = layer._conv_forward(x, weight, layer.bias)
    return output


def pass_observed(module: nn.Module, x: torch.Tensor, hooks: Iterable[RemovableHandle]) -> None:
    """Pass samples through a module in evaluation, and remove its hooks."""
    training = module.training
    try:
        module.eval()(x)
    finally:
        module.train(training)
        for hook in hooks:
            hook.remove()


def remake(layer: _ConvNd, kinds: Sequence[type[_ConvNd]], purpose: str) -> _ConvNd:
    """Return a convolution as the matching subclass of its type, with its own entries.

    Args:
        layer: one of torch's convolutions; a subclass is refused, because it may compute something else.
        kinds: subclasses of torch's convolutions.
        purpose: beginning of the error message: the feature and the layer.

    Raises:
        InputError: no kind matches.
    """
    kind: Callable[..., _ConvNd] | None = next((kind for kind in kinds if type(layer) in kind.__bases__), None)
    if kind is None:
        names = ", ".join(
            base.__name__ for kind in kinds for base in kind.__bases__ if base in (nn.Conv1d, nn.Conv2d, nn.Conv3d)
        )
        raise InputError(f"{purpose}, a {type(layer).__name__}: must be one of {names} itself; choose another")
    remade = kind(
        layer.in_channels,
        layer.out_channels,
        layer.kernel_size,
        layer.stride,
        layer.padding,
        layer.dilation,
        groups=layer.groups,
        bias=layer.bias is not None,
        padding_mode=layer.padding_mode,
        device="meta",  # draws no weights: the layer's own follow
    )
    remade.weight, remade.bias = layer.weight, layer.bias
    return remade


def standardised(weight: torch.Tensor) -> torch.Tensor:
    """Return the weights with each output filter shifted to mean 0 and scaled to variance 1.

        w_o <- (w_o - mean(w_o)) / sqrt(var(w_o) + eps),   over the I values of output o

    Args:
        weight: [outputs, inputs, *kernel].

    Paper: Qiao et al., "Weight Standardization", 2019.
    """
    variance, mean = torch.var_mean(weight, list(range(1, weight.dim())), correction=0, keepdim=True)
    return (weight - mean) / (variance + EPS).sqrt()


class StandardisedConvolution(_ConvNd):
    """A convolution by standardised weights; training changes the entry `weight`."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return convolve(self, x, standardised(self.weight))


StandardisedConv1d, StandardisedConv2d, StandardisedConv3d = STANDARDISED = tuple(
    type(f"Standardised{base.__name__}", (StandardisedConvolution, base), {})
    for base in (nn.Conv1d, nn.Conv2d, nn.Conv3d)
)


def standardised_convolution(layer: _ConvNd, name: str) -> _ConvNd:
    """Return a convolution with standardised weights; it keeps the layer's entries.

    Args:
        layer: convolution to replace.
        name: name of the layer, for the error message.

    Raises:
        InputError: a filter has a single weight, whose standardised value is 0, or the layer is a subclass.
    """
    if layer.weight[0].numel() < 2:
        raise InputError(
            f"model.norm = 'group+ws' over model layer {name}, whose filters have one weight: must be two or more, "
            'because a single weight has no spread; set model.norm = "group"'
        )
    return remake(layer, STANDARDISED, f"model.norm = 'group+ws' over model layer {name}")
