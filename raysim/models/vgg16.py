"""VGG16 of Simonyan & Zisserman, 2015, configuration D, as Keras builds it for FedMMB, section 4."""

from torch import nn

from raysim.models.norm import Norm
from raysim.models.stack import Stack

STAGES = ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3))
"""Channels, and how many convolutions stand before each pool."""


def vgg16(shape: tuple[int, ...], classes: int, *, norm: Norm = "none") -> nn.Module:
    """VGG16 without adaptive pooling and dropout: thirteen 3x3 convolutions, hidden layers of 4096 and 4096.

    With 200x150x3 inputs and 7 classes 81,860,423 parameters: it flattens 6x4x512, and FedMMB, section 4, counts
    about 82 million. torchvision's would pool to 7x7, and have more.

    Args:
        shape: one image's (channels, height, width); the model takes x [n, *shape].
        classes: outputs, the logits [n, classes].
        norm: behind each convolution and hidden layer.

    Raises:
        InputError: the data are not images of at least 32x32.
    """
    layers = Stack("vgg16", shape, least=32)
    for channels, count in STAGES:
        for _ in range(count):
            layers.convolution(channels, 3, norm, padding=1)
        layers.pool()
    layers.hidden(4096, norm)
    layers.hidden(4096, norm)
    return layers.output(classes)
