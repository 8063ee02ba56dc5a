"""ResNet-20 of He et al., "Deep Residual Learning for Image Recognition", section 4.2: the one for CIFAR."""

import torch
from torch import nn
from torch.nn import functional as F

from raysim.models.images import image_of
from raysim.models.norm import Norm
from raysim.models.stack import batch_norm

WIDTHS = (16, 32, 64)
BLOCKS = 3
"""Blocks of each width: 6 x 3 + 2 = 20 layers."""


def resnet20(shape: tuple[int, ...], classes: int, *, norm: Norm = "batch") -> nn.Module:
    """ResNet-20 for small images: three stages of three blocks, 16 to 64 channels, shortcuts without parameters.

    With 32x32x3 inputs and 10 classes 269,722 parameters, and 19 batch-norm layers: FixBN's Table 5 counts
    3 x 19 + 1 = 58 exchanges.

    Args:
        shape: one image's (channels, height, width); the model takes x [n, *shape].
        classes: outputs, the logits [n, classes].
        norm: behind each convolution; without one these have biases.

    Raises:
        InputError: the data are not images.
    """
    inputs, _, _ = image_of("resnet20", shape)
    model = nn.Sequential()
    model.add_module("stem", nn.Sequential(*_convolution(inputs, WIDTHS[0], 1, norm), nn.ReLU()))
    inputs = WIDTHS[0]
    for stage, width in enumerate(WIDTHS, start=1):
        for block in range(1, BLOCKS + 1):
            stride = 2 if block == 1 and stage > 1 else 1
            model.add_module(f"stage{stage}block{block}", Block(inputs, width, stride, norm))
            inputs = width
    model.add_module("average", nn.AdaptiveAvgPool2d(1))
    model.add_module("flatten", nn.Flatten())
    model.add_module("output", nn.Linear(inputs, classes))
    return model


class Block(nn.Module):
    """x <- relu(shortcut(x) + f(x)), f two 3x3 convolutions with norm and a ReLU between.

    The shortcut takes every stride-th pixel, and zeros for the channels that x does not have: option A of the paper.
    """

    def __init__(self, inputs: int, outputs: int, stride: int, norm: Norm) -> None:
        super().__init__()
        # The names by which Fixup finds a residual branch.
        self.conv1, self.bn1 = _pair(inputs, outputs, stride, norm)
        self.conv2, self.bn2 = _pair(outputs, outputs, 1, norm)
        self.stride = stride
        self.added = outputs - inputs
        self.relu = nn.ReLU()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        shortcut = x[..., :: self.stride, :: self.stride]
        shortcut = F.pad(shortcut, (0, 0, 0, 0, 0, self.added))
        branch = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        activated: torch.Tensor = self.relu(shortcut + branch)
        return activated


def _pair(inputs: int, outputs: int, stride: int, norm: Norm) -> tuple[nn.Module, nn.Module]:
    """A convolution and its norm, or nothing in its place."""
    convolution, *normalised = _convolution(inputs, outputs, stride, norm)
    return convolution, normalised[0] if normalised else nn.Identity()


def _convolution(inputs: int, outputs: int, stride: int, norm: Norm) -> list[nn.Module]:
    layer = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=norm == "none")
    nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
    return [layer, *batch_norm(norm, outputs, spatial=True)]
