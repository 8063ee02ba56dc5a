"""A network without branches, written down line by line as its paper's table has it."""

from torch import nn

from raysim.common.errors import unknown
from raysim.models.images import image_of
from raysim.models.norm import NORMS, Norm, normalise
from raysim.models.windows import WindowMean


class Stack:
    """Adds layers to a plain `nn.Sequential`, and follows the shape that they leave.

    Convolutions and linear layers are numbered together, as tables number them: conv1, norm1, relu1, pool1, conv2, ...

    Args:
        model: its name, for the message.
        shape: one image's (channels, height, width).
        least: the smallest height and width that it takes.

    Raises:
        InputError: the samples are no images, or smaller.
    """

    def __init__(self, model: str, shape: tuple[int, ...], least: int) -> None:
        self._channels, self._height, self._width = image_of(model, shape, least)
        self._layers = nn.Sequential()
        self._number = 0

    def convolution(self, outputs: int, kernel: int, norm: Norm, *, stride: int = 1, padding: int = 0) -> None:
        """A convolution with bias, norm, ReLU."""
        layer = nn.Conv2d(self._channels, outputs, kernel, stride, padding)
        self._add("conv", layer, batch_norm(norm, outputs, spatial=True))
        self._channels = outputs
        self._resize(kernel, stride, padding)

    def pool(self, kernel: int = 2, stride: int = 2) -> None:
        """Max pooling without padding: what does not fill a window is left out."""
        self._layers.add_module(f"pool{self._number}", nn.MaxPool2d(kernel, stride))
        self._resize(kernel, stride, 0)

    def average(self, size: int) -> None:
        """The means over size x size windows that cover the image."""
        self._layers.add_module("average", WindowMean(self._height, self._width, size))
        self._height = self._width = size

    def hidden(self, width: int, norm: Norm) -> None:
        """A linear layer, norm, ReLU."""
        layer = nn.Linear(self._flat(), width)
        self._add("linear", layer, batch_norm(norm, width, spatial=False))
        self._channels = width

    def output(self, classes: int) -> nn.Sequential:
        """The network, ended by a linear layer."""
        self._layers.add_module("output", nn.Linear(self._flat(), classes))
        return self._layers

    def _add(self, name: str, layer: nn.Module, norm: list[nn.Module]) -> None:
        self._number += 1
        self._layers.add_module(f"{name}{self._number}", layer)
        for each in norm:
            self._layers.add_module(f"norm{self._number}", each)
        self._layers.add_module(f"relu{self._number}", nn.ReLU())

    def _resize(self, kernel: int, stride: int, padding: int) -> None:
        self._height, self._width = (
            (size + 2 * padding - kernel) // stride + 1 for size in (self._height, self._width)
        )

    def _flat(self) -> int:
        """The width of what comes in, flattened."""
        if "flatten" not in self._layers._modules:
            self._layers.add_module("flatten", nn.Flatten())
            self._channels *= self._height * self._width
        return self._channels


def batch_norm(norm: Norm, channels: int, *, spatial: bool) -> list[nn.Module]:
    """The layers, none or one, behind a layer of `channels` outputs: batch norm, for which others stand in later."""
    return normalise(built(norm), channels, spatial=spatial)


def built(norm: Norm) -> Norm:
    """What a builder puts in place: "none", or "batch" whatever else is asked for.

    Raises:
        InputError: the norm is not known.
    """
    if norm not in NORMS:
        raise unknown(f"norm {norm!r}", norm, NORMS)
    return "none" if norm == "none" else "batch"
