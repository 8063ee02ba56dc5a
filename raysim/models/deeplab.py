"""The network DeepLabv3+ and its backbones."""

from collections.abc import Callable, Mapping
from typing import TypeAlias

import torch
from torch import nn
from torch.nn.functional import interpolate

from raysim.models.residual_layers import first_convolution

SplitBackbone: TypeAlias = tuple[nn.Module, nn.Module, tuple[int, int]]
"""Backbone up to a quarter of the image's size, its rest up to a sixteenth, and the channels behind both."""

ATROUS_RATES = (6, 12, 18)
"""Dilations of the atrous convolutions at an output stride of 16: section 4."""


class DeepLabV3Plus(nn.Module):
    """Network from images [n, channels, height, width] to logits [n, classes, height, width].

    Args:
        low: network from images to features at a quarter of their size.
        high: network from these features to features at a sixteenth.
        widths: channels of both.
        classes: classes of a pixel.
    """

    def __init__(self, low: nn.Module, high: nn.Module, widths: tuple[int, int], classes: int) -> None:
        from torchvision.models.segmentation.deeplabv3 import ASPP

        super().__init__()
        self.low = low
        self.high = high
        self.pyramid = ASPP(widths[1], ATROUS_RATES)
        self.project = nn.Sequential(*_convolution(widths[0], 48, 1))
        self.decoder = nn.Sequential(
            *_convolution(48 + 256, 256, 3), *_convolution(256, 256, 3), nn.Conv2d(256, classes, 1)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        low = self.low(x)
        high = self.pyramid(self.high(low))
        both = torch.cat([self.project(low), _enlarged(high, low)], dim=1)
        return _enlarged(self.decoder(both), x)


def _enlarged(x: torch.Tensor, to: torch.Tensor) -> torch.Tensor:
    return interpolate(x, size=to.shape[-2:], mode="bilinear", align_corners=False)


def _convolution(inputs: int, outputs: int, kernel: int) -> list[nn.Module]:
    return [nn.Conv2d(inputs, outputs, kernel, padding=kernel // 2, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()]


def _mobilenet_v2(channels: int) -> SplitBackbone:
    """Return MobileNetV2 up to its last bottleneck; dilation replaces the fifth stride of 2."""
    import torchvision

    features = torchvision.models.mobilenet_v2(weights=None).features
    features[0][0] = first_convolution(channels, 32, kernel=3, stride=2)
    features[14].conv[1][0].stride = (1, 1)
    for block in features[15:18]:
        depthwise = block.conv[1][0]
        depthwise.dilation = depthwise.padding = (2, 2)
    return features[:4], features[4:18], (24, 320)


def _resnet50(channels: int) -> SplitBackbone:
    """Return ResNet-50; dilation replaces its last stride of 2."""
    import torchvision

    net = torchvision.models.resnet50(weights=None, replace_stride_with_dilation=[False, False, True])
    stem = first_convolution(channels, 64, kernel=7, stride=2)
    low = nn.Sequential(stem, net.bn1, net.relu, net.maxpool, net.layer1)
    return low, nn.Sequential(net.layer2, net.layer3, net.layer4), (256, 2048)


BACKBONES: Mapping[str, Callable[[int], SplitBackbone]] = {"mobilenet_v2": _mobilenet_v2, "resnet50": _resnet50}
