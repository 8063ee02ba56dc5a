"""Weight standardisation of convolutions: Qiao et al., "Weight Standardization", 2019."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn.modules.conv import _ConvNd

from raysim.common.errors import InputError
from raysim.models.convolutions import convolved, remade

EPS = 1e-5
"""Added to each filter's variance."""


def standardised(weight: torch.Tensor) -> torch.Tensor:
    """The weights of each output filter, shifted to mean 0 and scaled to variance 1.

        w_o <- (w_o - mean(w_o)) / sqrt(var(w_o) + eps),   over the I values of output o

    Args:
        weight: [outputs, inputs, *kernel].
    """
    variance, mean = torch.var_mean(weight, list(range(1, weight.dim())), correction=0, keepdim=True)
    return (weight - mean) / (variance + EPS).sqrt()


class StandardisedConv1d(nn.Conv1d):
    """A convolution by standardised weights; the entry `weight` is what is trained."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return convolved(self, x, standardised(self.weight))


class StandardisedConv2d(nn.Conv2d):
    """A convolution by standardised weights; the entry `weight` is what is trained."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return convolved(self, x, standardised(self.weight))


class StandardisedConv3d(nn.Conv3d):
    """A convolution by standardised weights; the entry `weight` is what is trained."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return convolved(self, x, standardised(self.weight))


KINDS: tuple[type[_ConvNd], ...] = (StandardisedConv1d, StandardisedConv2d, StandardisedConv3d)


def standardising(layer: _ConvNd, name: str) -> _ConvNd:
    """The same convolution with standardised weights: its entries are the layer's own.

    Raises:
        InputError: a filter has one weight only, whose standardised value is always 0; or it is another convolution.
    """
    if layer.weight[0].numel() < 2:
        raise InputError(
            f"norm 'group+ws' over model layer {name}, whose filters have one weight: must be two or more, for one has "
            'no spread; choose norm = "group"'
        )
    return remade(layer, KINDS, f"norm 'group+ws' over model layer {name}")
