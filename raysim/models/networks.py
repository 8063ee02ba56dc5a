"""Networks that the builders of models return, line by line like the tables of their papers.

Builders import this file late, because torch takes seconds to import.
"""

from collections.abc import Callable, Mapping
from typing import TypeAlias

import torch
from torch import nn
from torch.nn import functional as F

from algorithms.core.batch_norm import is_batch_norm
from raysim.common.errors import InputError
from raysim.models.keys import Norm
from raysim.models.norm import batch_norm

SplitBackbone: TypeAlias = tuple[nn.Module, nn.Module, tuple[int, int]]
"""Backbone up to a quarter of the image's size, its rest up to a sixteenth, and the channels behind both."""

ATROUS_RATES = (6, 12, 18)
"""Dilations of the atrous convolutions at an output stride of 16: section 4."""


class LayerStack:
    """A plain `nn.Sequential` under construction, and the shape that its last layer leaves.

    Convolutions and linear layers are numbered together, like in the papers' tables: conv1, norm1, pool1, relu1,
    conv2, ...

    Args:
        channels: channels of an image; or the number of values of any other sample.
        height: height of an image.
        width: width of an image.
    """

    def __init__(self, channels: int, height: int = 1, width: int = 1) -> None:
        self._channels, self._height, self._width = channels, height, width
        self._layers = nn.Sequential()
        self._number = 0

    def convolution(
        self, outputs: int, kernel: int, norm: Norm, *, stride: int = 1, padding: int = 0, pool: int = 0
    ) -> None:
        """Add a convolution with bias, its norm, perhaps max pooling, and a ReLU.

        Pooling has windows of `pool` pixels, stride 2 and no padding; it drops pixels that do not fill a window.
        """
        layer = nn.Conv2d(self._channels, outputs, kernel, stride, padding)
        # max(relu(x)) = relu(max(x)), also in the gradient, and the pool leaves the ReLU a fraction of the values.
        pooling = nn.MaxPool2d(pool, 2) if pool else None
        self._add({"conv": layer, "norm": batch_norm(norm, outputs, spatial=True), "pool": pooling})
        self._channels = outputs
        self._resize(kernel, stride, padding)
        if pool:
            self._resize(pool, 2, 0)

    def dropout(self, share: float) -> None:
        """Add dropout behind a layer."""
        self._layers.add_module(f"dropout{self._number}", nn.Dropout(share))

    def average(self, size: int) -> None:
        """Add the means over size x size windows that cover the image."""
        self._layers.add_module("average", WindowMean(self._height, self._width, size))
        self._height = self._width = size

    def hidden(self, width: int, norm: Norm, *, numbered: bool = True) -> None:
        """Add a linear layer, its norm and a ReLU; the names of a single one may have no number."""
        layer = nn.Linear(self._flat(), width)
        self._add({"linear": layer, "norm": batch_norm(norm, width, spatial=False)}, numbered=numbered)
        self._channels = width

    def output(self, classes: int) -> nn.Sequential:
        """Add the final linear layer and return the network."""
        self._layers.add_module("output", nn.Linear(self._flat(), classes))
        return self._layers

    def _add(self, layers: Mapping[str, nn.Module | None], *, numbered: bool = True) -> None:
        """Add layers by name, and a ReLU; None stands for no layer."""
        self._number += 1
        for name, layer in {**layers, "relu": nn.ReLU()}.items():
            if layer is not None:
                self._layers.add_module(f"{name}{self._number if numbered else ''}", layer)

    def _resize(self, kernel: int, stride: int, padding: int) -> None:
        self._height, self._width = (
            (size + 2 * padding - kernel) // stride + 1 for size in (self._height, self._width)
        )

    def _flat(self) -> int:
        """Return the number of inputs of a linear layer; flatten the samples before the first one."""
        if "flatten" not in self._layers._modules:
            self._layers.add_module("flatten", nn.Flatten())
            self._channels *= self._height * self._width
        return self._channels


class WindowMean(nn.Module):
    """Means over size x size windows that cover an image, with the same gradient on every device.

        x <- R x C

    The windows are those of `nn.AdaptiveAvgPool2d`. On a GPU that layer sums its gradient in an arbitrary order of
    threads; two matrix products do not.

    Args:
        height: height of the images.
        width: width of the images.
        size: windows a side; they overlap if it does not divide the image's side.
    """

    rows: torch.Tensor
    columns: torch.Tensor

    def __init__(self, height: int, width: int, size: int) -> None:
        super().__init__()
        self.register_buffer("rows", _window_weights(height, size), persistent=False)
        self.register_buffer("columns", _window_weights(width, size).T.contiguous(), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.rows @ x @ self.columns


def _window_weights(length: int, size: int) -> torch.Tensor:
    """Return [size, length]: row i is the mean over [floor(i length / size), ceil((i + 1) length / size))."""
    means = torch.zeros(size, length)
    for i in range(size):
        first, last = i * length // size, -(-(i + 1) * length // size)
        means[i, first:last] = 1 / (last - first)
    return means


class NextSymbol(nn.Module):
    """Network from symbols [n, length] to the logits [n, classes] of the next symbol."""

    def __init__(self, vocabulary: int, embedding: int, hidden: int, layers: int, classes: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, embedding)
        self.lstm = nn.LSTM(embedding, hidden, layers, batch_first=True)
        self.output = nn.Linear(hidden, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        # raysim reads uint8 as pixels in [0, 1], and all of them would become symbol 0. This check excludes torch.func,
        # but that would run LSTMs one by one anyway.
        symbols, count = x.long(), self.embedding.num_embeddings
        wrong = (symbols != x) | (symbols < 0) | (symbols >= count)
        if wrong.any():
            raise InputError(
                f"model lstm on the value {x[wrong][0].item():g}: must be a whole number from 0 to {count - 1}; set "
                "model.vocabulary, and store symbols as int16 or wider, because raysim reads uint8 as pixels"
            )
        states, _ = self.lstm(self.embedding(symbols))
        logits: torch.Tensor = self.output(states[:, -1])
        return logits


class ResidualBlock(nn.Module):
    """Residual block of two 3x3 convolutions with norm and a ReLU between (option A of the paper).

        x <- relu(shortcut(x) + f(x))

    The shortcut takes every stride-th pixel, and fills channels that x lacks with zeros.
    """

    def __init__(self, inputs: int, outputs: int, stride: int, norm: Norm) -> None:
        super().__init__()
        # Fixup finds a residual branch by these names.
        self.conv1, self.bn1 = convolution(inputs, outputs, stride, norm)
        self.conv2, self.bn2 = convolution(outputs, outputs, 1, norm)
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
    """
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


def convolution(inputs: int, outputs: int, stride: int, norm: Norm) -> list[nn.Module]:
    """Return a 3x3 convolution and its norm; without a norm, the convolution with a bias and an identity."""
    layer = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=norm == "none")
    nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
    return [layer, batch_norm(norm, outputs, spatial=True) or nn.Identity()]


class DeepLabV3Plus(nn.Module):
    """Network from images [n, channels, height, width] to logits [n, classes, height, width].

    Args:
        low: network from images to features at a quarter of their size.
        high: network from these features to features at a sixteenth.
        widths: channels of both.
        classes: classes of a pixel.
    """

    def __init__(self, low: nn.Module, high: nn.Module, widths: tuple[int, int], classes: int) -> None:
        from raysim.common.vision import torchvision  # late, as in all models: torchvision takes time to import

        super().__init__()
        self.low = low
        self.high = high
        self.pyramid = torchvision.models.segmentation.deeplabv3.ASPP(widths[1], ATROUS_RATES)
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
    return F.interpolate(x, size=to.shape[-2:], mode="bilinear", align_corners=False)


def _convolution(inputs: int, outputs: int, kernel: int) -> list[nn.Module]:
    return [nn.Conv2d(inputs, outputs, kernel, padding=kernel // 2, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()]


def _mobilenet_v2(channels: int) -> SplitBackbone:
    """Return MobileNetV2 up to its last bottleneck; dilation replaces the fifth stride of 2."""
    from raysim.common.vision import torchvision

    features = torchvision.models.mobilenet_v2(weights=None).features
    features[0][0] = first_convolution(channels, 32, kernel=3, stride=2)
    features[14].conv[1][0].stride = (1, 1)
    for block in features[15:18]:
        depthwise = block.conv[1][0]
        depthwise.dilation = depthwise.padding = (2, 2)
    return features[:4], features[4:18], (24, 320)


def _resnet50(channels: int) -> SplitBackbone:
    """Return ResNet-50; dilation replaces its last stride of 2."""
    from raysim.common.vision import torchvision

    net = torchvision.models.resnet50(weights=None, replace_stride_with_dilation=[False, False, True])
    stem = first_convolution(channels, 64, kernel=7, stride=2)
    low = nn.Sequential(stem, net.bn1, net.relu, net.maxpool, net.layer1)
    return low, nn.Sequential(net.layer2, net.layer3, net.layer4), (256, 2048)


BACKBONES: Mapping[str, Callable[[int], SplitBackbone]] = {"mobilenet_v2": _mobilenet_v2, "resnet50": _resnet50}
