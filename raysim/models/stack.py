"""A network without branches, written line by line like the table of its paper."""

import torch
from torch import nn

from raysim.models.keys import Norm
from raysim.models.norm import batch_norm


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

    def convolution(self, outputs: int, kernel: int, norm: Norm, *, stride: int = 1, padding: int = 0) -> None:
        """Add a convolution with bias, its norm and a ReLU."""
        layer = nn.Conv2d(self._channels, outputs, kernel, stride, padding)
        self._add("conv", layer, batch_norm(norm, outputs, spatial=True))
        self._channels = outputs
        self._resize(kernel, stride, padding)

    def pool(self, kernel: int = 2, stride: int = 2) -> None:
        """Add max pooling without padding behind a convolution; it drops pixels that do not fill a window."""
        # max(relu(x)) = relu(max(x)), also in the gradient, and the pool leaves the ReLU a fraction of the values.
        delattr(self._layers, f"relu{self._number}")
        self._layers.add_module(f"pool{self._number}", nn.MaxPool2d(kernel, stride))
        self._layers.add_module(f"relu{self._number}", nn.ReLU())
        self._resize(kernel, stride, 0)

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
        self._add("linear", layer, batch_norm(norm, width, spatial=False), numbered=numbered)
        self._channels = width

    def output(self, classes: int) -> nn.Sequential:
        """Add the final linear layer and return the network."""
        self._layers.add_module("output", nn.Linear(self._flat(), classes))
        return self._layers

    def _add(self, name: str, layer: nn.Module, norm: list[nn.Module], *, numbered: bool = True) -> None:
        self._number += 1
        number = self._number if numbered else ""
        self._layers.add_module(f"{name}{number}", layer)
        for each in norm:
            self._layers.add_module(f"norm{number}", each)
        self._layers.add_module(f"relu{number}", nn.ReLU())

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
