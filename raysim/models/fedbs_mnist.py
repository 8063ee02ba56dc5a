"""The network of Idrissi et al., "FedBS: Learning on Non-IID Data in Federated Learning using Batch Normalization"."""

from torch import nn

from raysim.models.norm import Norm
from raysim.models.stack import Stack


def fedbs_mnist(shape: tuple[int, ...], classes: int, *, norm: Norm = "batch") -> nn.Module:
    """FedBS's network for MNIST and Fashion-MNIST: two 5x5 convolutions of 16 and 32 channels, one linear layer.

    With 28x28x1 inputs and 10 classes 29,034 parameters.

    Args:
        shape: one image's (channels, height, width); the model takes x [n, *shape].
        classes: outputs, the logits [n, classes].
        norm: behind each convolution.

    Raises:
        InputError: the data are not images of at least 4x4.

    Deviations:
        Section V's "1568 units" are what the linear layer takes, 32x7x7 with a padding of 2, and not what it gives.
    """
    layers = Stack("fedbs_mnist", shape, least=4)
    for channels in (16, 32):
        layers.convolution(channels, 5, norm, padding=2)
        layers.pool()
    return layers.output(classes)
