"""The network of Idrissi et al., "FedBS: Learning on Non-IID Data in Federated Learning using Batch Normalization"."""

from torch import nn

from raysim.models.norm import Norm
from raysim.models.stack import Stack


def fedbs_cifar(shape: tuple[int, ...], classes: int, *, norm: Norm = "batch") -> nn.Module:
    """FedBS's network for CIFAR-10: a 5x5 and three 3x3 convolutions, 100 to 500 channels, three linear layers.

    With 32x32x3 inputs and 10 classes 2,865,430 parameters.

    Args:
        shape: one image's (channels, height, width); the model takes x [n, *shape].
        classes: outputs, the logits [n, classes].
        norm: behind each convolution.

    Raises:
        InputError: the data are not images of at least 2x2.

    Deviations:
        Section V's "4500, 270, 150 units" are what the linear layers take, and not what they give: a padding of 2
        throughout, also of the 3x3 convolutions, leaves 500x3x3. ReLU between them is not mentioned.
    """
    layers = Stack("fedbs_cifar", shape, least=2)
    for channels, kernel in ((100, 5), (150, 3), (250, 3), (500, 3)):
        layers.convolution(channels, kernel, norm, padding=2)
        layers.pool()
    layers.hidden(270, "none")
    layers.hidden(150, "none")
    return layers.output(classes)
