"""The network for digits of Li et al., "FedBN", ICLR 2021, appendix D.2."""

from torch import nn

from raysim.models.norm import Norm
from raysim.models.stack import Stack


def digit_cnn(shape: tuple[int, ...], classes: int, *, norm: Norm = "batch") -> nn.Module:
    """FedBN's six-layer network for digits: three 5x5 convolutions, hidden layers of 2048 and 512.

    With 28x28x3 inputs and 10 classes 14,219,210 parameters.

    Args:
        shape: one image's (channels, height, width); the model takes x [n, *shape].
        classes: outputs, the logits [n, classes].
        norm: behind each convolution and hidden layer.

    Raises:
        InputError: the data are not images of at least 4x4.

    Deviations:
        Table 3 prints Conv2D(64, 128, 5, 1, 2) twice; a second one could not take the first one's 128 channels, and
        a six-layer network has it once.
    """
    layers = Stack("digit_cnn", shape, least=4)
    layers.convolution(64, 5, norm, padding=2)
    layers.pool()
    layers.convolution(64, 5, norm, padding=2)
    layers.pool()
    layers.convolution(128, 5, norm, padding=2)
    layers.hidden(2048, norm)
    layers.hidden(512, norm)
    return layers.output(classes)
