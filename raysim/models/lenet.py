"""The LeNet-like network of FixBN, after LeCun et al., "Gradient-based learning applied to document recognition"."""

from torch import nn

from raysim.models.norm import Norm
from raysim.models.stack import Stack


def lenet(shape: tuple[int, ...], classes: int, *, norm: Norm = "none") -> nn.Module:
    """LeNet-5 with ReLU and max pooling: two 5x5 convolutions without padding, hidden layers of 120 and 84.

    With 32x32x3 inputs and 10 classes 62,006 parameters.

    Args:
        shape: one image's (channels, height, width); the model takes x [n, *shape].
        classes: outputs, the logits [n, classes].
        norm: behind each convolution and hidden layer; FixBN, section 4, compares batch and group.

    Raises:
        InputError: the data are not images of at least 16x16.

    Deviations:
        FixBN says "LeNet-like" and no more: the widths are LeNet-5's; its sums over pools with coefficients, tanh
        and radial outputs are max pools, ReLU and a linear layer, as has become usual.
    """
    layers = Stack("lenet", shape, least=16)
    layers.convolution(6, 5, norm)
    layers.pool()
    layers.convolution(16, 5, norm)
    layers.pool()
    layers.hidden(120, norm)
    layers.hidden(84, norm)
    return layers.output(classes)
