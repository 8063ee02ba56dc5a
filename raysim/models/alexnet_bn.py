"""AlexNet with batch norm, of Li et al., "FedBN", ICLR 2021, appendix D.3."""

from torch import nn

from raysim.models.norm import Norm
from raysim.models.stack import Stack


def alexnet_bn(shape: tuple[int, ...], classes: int, *, norm: Norm = "batch") -> nn.Module:
    """FedBN's AlexNet for Office-Caltech10 and DomainNet: five convolutions, hidden layers of 4096 and 4096.

    With 256x256x3 inputs and 10 classes 57,063,498 parameters.

    Args:
        shape: one image's (channels, height, width); the model takes x [n, *shape].
        classes: outputs, the logits [n, classes].
        norm: behind each convolution and hidden layer.

    Raises:
        InputError: the data are not images of at least 63x63.

    Deviations:
        Table 9 prints Conv2D(64, 128, 5, 1, 2) between its second and third convolution; it fits neither neighbour,
        and is left out. There is no dropout, as in the table.
    """
    layers = Stack("alexnet_bn", shape, least=63)
    layers.convolution(64, 11, norm, stride=4, padding=2)
    layers.pool(3)
    layers.convolution(192, 5, norm, padding=2)
    layers.pool(3)
    layers.convolution(384, 3, norm, padding=1)
    layers.convolution(256, 3, norm, padding=1)
    layers.convolution(256, 3, norm, padding=1)
    layers.pool(3)
    layers.average(6)
    layers.hidden(4096, norm)
    layers.hidden(4096, norm)
    return layers.output(classes)
