"""The 3CFNN of FedMMB, which is the convolutional network of McMahan et al., AISTATS 2017, section 3."""

from torch import nn

from raysim.models.norm import Norm
from raysim.models.stack import Stack


def cnn3(shape: tuple[int, ...], classes: int, *, norm: Norm = "none") -> nn.Module:
    """FedMMB's 3CFNN: two 5x5 convolutions of 32 and 64 channels, a hidden layer of 512.

    With 28x28x1 inputs and 10 classes 1,663,370 parameters, which is McMahan et al.'s count.

    Args:
        shape: one image's (channels, height, width); the model takes x [n, *shape].
        classes: outputs, the logits [n, classes].
        norm: behind each convolution and the hidden layer.

    Raises:
        InputError: the data are not images of at least 4x4.

    Deviations:
        FedMMB, section 4, names no padding; McMahan et al.'s count needs one of 2.
    """
    layers = Stack("cnn3", shape, least=4)
    for channels in (32, 64):
        layers.convolution(channels, 5, norm, padding=2)
        layers.pool()
    layers.hidden(512, norm)
    return layers.output(classes)
