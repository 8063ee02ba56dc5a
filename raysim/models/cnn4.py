"""The 4CFNN of FedMMB, section 4."""

from torch import nn

from raysim.models.norm import Norm
from raysim.models.stack import Stack


def cnn4(shape: tuple[int, ...], classes: int, *, norm: Norm = "none") -> nn.Module:
    """FedMMB's 4CFNN: three 3x3 convolutions of 128, 256 and 512 channels, a hidden layer of 1024.

    With 32x32x3 inputs and 10 classes 9,878,794 parameters.

    Args:
        shape: one image's (channels, height, width); the model takes x [n, *shape].
        classes: outputs, the logits [n, classes].
        norm: behind each convolution and the hidden layer.

    Raises:
        InputError: the data are not images of at least 8x8.

    Deviations:
        The text names no padding: 1, which keeps the size, as the 3CFNN's does.
    """
    layers = Stack("cnn4", shape, least=8)
    for channels in (128, 256, 512):
        layers.convolution(channels, 3, norm, padding=1)
        layers.pool()
    layers.hidden(1024, norm)
    return layers.output(classes)
