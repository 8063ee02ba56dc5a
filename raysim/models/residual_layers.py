"""Layers of residual networks: a block, convolutions, and the adaptation of torchvision's networks."""

import torch
from torch import nn
from torch.nn import functional as F

from algorithms.core.batch_norm import is_batch_norm
from raysim.models.keys import Norm, check_norm
from raysim.models.norm import batch_norm


class ResidualBlock(nn.Module):
    """Residual block of two 3x3 convolutions with norm and a ReLU between (option A of the paper).

        x <- relu(shortcut(x) + f(x))

    The shortcut takes every stride-th pixel, and fills channels that x lacks with zeros.
    """

    def __init__(self, inputs: int, outputs: int, stride: int, norm: Norm) -> None:
        super().__init__()
        # Fixup finds a residual branch by these names.
        self.conv1, self.bn1 = _convolution_and_norm(inputs, outputs, stride, norm)
        self.conv2, self.bn2 = _convolution_and_norm(outputs, outputs, 1, norm)
        self.stride = stride
        self.added = outputs - inputs
        self.relu = nn.ReLU()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        shortcut = x[..., :: self.stride, :: self.stride]
        shortcut = F.pad(shortcut, (0, 0, 0, 0, 0, self.added))
        branch = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        activated: torch.Tensor = self.relu(shortcut + branch)
        return activated


def adapted(module: nn.Module, norm: Norm) -> nn.Module:
    """Make activations not in place, and remove batch norm if `norm` is "none".

    Args:
        module: one of torchvision's networks; it is changed.
        norm: normaliser asked for.

    Raises:
        InputError: the norm is not known.
    """
    check_norm(norm)
    for parent in list(module.modules()):
        if isinstance(parent, (nn.ReLU, nn.ReLU6)):
            # An observer of a norm's output would see it overwritten.
            parent.inplace = False
        for name, layer in parent.named_children():
            if norm == "none" and is_batch_norm(layer):
                setattr(parent, name, nn.Identity())
    return module


def first_convolution(channels: int, outputs: int, kernel: int, stride: int) -> nn.Conv2d:
    """Return a first convolution, initialised like torchvision's: He et al.'s normal weights, by fan-out.

    Args:
        channels: channels of the images.
        outputs: channels of the result.
        kernel: side of the filter, in pixels.
        stride: stride, in pixels.
    """
    layer = nn.Conv2d(channels, outputs, kernel, stride, padding=kernel // 2, bias=False)
    nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
    return layer


def _convolution_and_norm(inputs: int, outputs: int, stride: int, norm: Norm) -> tuple[nn.Module, nn.Module]:
    layer, *normalised = convolution(inputs, outputs, stride, norm)
    return layer, normalised[0] if normalised else nn.Identity()


def convolution(inputs: int, outputs: int, stride: int, norm: Norm) -> list[nn.Module]:
    """Return a 3x3 convolution and its norm; without a norm the convolution has a bias."""
    layer = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=norm == "none")
    nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
    return [layer, *batch_norm(norm, outputs, spatial=True)]
