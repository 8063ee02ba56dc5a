"""Networks without branches: of linear layers, and convolutional ones, most of them from the papers' tables.

All builders take `shape`, that of one sample, for convolutions (channels, height, width), and `classes`, the number of
outputs. The model takes x [n, *shape] and returns the logits [n, classes].
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from raysim.models.keys import Count, Counts, Norm, image_shape

if TYPE_CHECKING:
    from torch import nn

    from raysim.models.networks import LayerStack

VGG16_STAGES = ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3))
"""Channels and number of convolutions before each pool."""


def logistic(shape: tuple[int, ...], classes: int) -> nn.Module:
    """Build a logistic regression: one linear layer on the flattened input."""
    from raysim.models.networks import LayerStack

    return LayerStack(math.prod(shape)).output(classes)


def mlp(shape: tuple[int, ...], classes: int, *, hidden: Counts = (200, 200), norm: Norm = "none") -> nn.Module:
    """Build a multilayer perceptron: linear, norm, ReLU for each hidden width, on the flattened input.

    With widths 784-200-200-10 it is the "2NN" of McMahan et al., AISTATS 2017, section 3.

    Args:
        hidden: widths of the hidden layers.
        norm: normaliser behind each hidden layer.
    """
    from raysim.models.networks import LayerStack

    layers = LayerStack(math.prod(shape))
    for width in hidden:
        layers.hidden(width, norm)
    return layers.output(classes)


def cnn(
    shape: tuple[int, ...],
    classes: int,
    *,
    channels: Counts = (32, 64),
    hidden: Count = 128,
    norm: Norm = "none",
) -> nn.Module:
    """Build a convolutional network: 3x3 convolution, norm, ReLU and 2x2 max pooling, repeated; then a hidden layer.

    Args:
        channels: outputs of each convolution; every one halves height and width.
        hidden: width of the linear layer before the output.
        norm: normaliser behind each convolution and the hidden layer.

    Raises:
        InputError: the data are not images or too small.
    """
    layers = _layers("cnn", shape, 2 ** len(channels), "use fewer model.channels")
    for outputs in channels:
        layers.convolution(outputs, 3, norm, padding=1, pool=2)
    layers.hidden(hidden, norm, numbered=False)
    return layers.output(classes)


def cnn_dropout(shape: tuple[int, ...], classes: int, *, hidden: Count = 128) -> nn.Module:
    """Build a convolutional network with dropout: two 3x3 convolutions, one 2x2 max pooling, a hidden layer.

    1,206,590 parameters for 28x28x1 inputs and 62 classes, as in the paper. The convolutions have no padding.

    Args:
        hidden: width of the linear layer before the output.

    Raises:
        InputError: the data are not images of at least 6x6.

    Paper: Reddi et al., "Adaptive Federated Optimization", 2021, table 4.
    """
    layers = _layers("cnn_dropout", shape, 6)
    layers.convolution(32, 3, "none")
    layers.convolution(64, 3, "none", pool=2)
    layers.dropout(0.25)
    layers.hidden(hidden, "none", numbered=False)
    layers.dropout(0.5)
    return layers.output(classes)


def lenet(shape: tuple[int, ...], classes: int, *, norm: Norm = "none") -> nn.Module:
    """Build LeNet-5 with ReLU and max pooling: two 5x5 convolutions, hidden layers of 120 and 84.

    62,006 parameters for 32x32x3 inputs and 10 classes. The convolutions have no padding.

    Args:
        norm: normaliser behind each convolution and hidden layer; FixBN, section 4, compares batch and group.

    Raises:
        InputError: the data are not images of at least 16x16.

    Paper: FixBN, section 4, after LeCun et al., "Gradient-based learning applied to document recognition", 1998.

    Deviations:
        FixBN says only "LeNet-like", so the widths are LeNet-5's. Max pools, ReLU and a linear layer replace its
        pools with coefficients, tanh and radial outputs, as is usual today.
    """
    layers = _layers("lenet", shape, 16)
    layers.convolution(6, 5, norm, pool=2)
    layers.convolution(16, 5, norm, pool=2)
    layers.hidden(120, norm)
    layers.hidden(84, norm)
    return layers.output(classes)


def cnn3(shape: tuple[int, ...], classes: int, *, norm: Norm = "none") -> nn.Module:
    """Build FedMMB's 3CFNN: two 5x5 convolutions of 32 and 64 channels, a hidden layer of 512.

    1,663,370 parameters for 28x28x1 inputs and 10 classes, as McMahan et al. count.

    Args:
        norm: normaliser behind each convolution and the hidden layer.

    Raises:
        InputError: the data are not images of at least 4x4.

    Paper: FedMMB, section 4; it is the convolutional network of McMahan et al., AISTATS 2017, section 3.

    Deviations:
        FedMMB names no padding. McMahan et al.'s count needs a padding of 2.
    """
    layers = _layers("cnn3", shape, 4)
    for channels in (32, 64):
        layers.convolution(channels, 5, norm, padding=2, pool=2)
    layers.hidden(512, norm)
    return layers.output(classes)


def cnn4(shape: tuple[int, ...], classes: int, *, norm: Norm = "none") -> nn.Module:
    """Build FedMMB's 4CFNN: three 3x3 convolutions of 128, 256 and 512 channels, a hidden layer of 1024.

    9,878,794 parameters for 32x32x3 inputs and 10 classes.

    Args:
        norm: normaliser behind each convolution and the hidden layer.

    Raises:
        InputError: the data are not images of at least 8x8.

    Paper: FedMMB, section 4.

    Deviations:
        The text names no padding. Like the 3CFNN, this model pads to keep the size.
    """
    layers = _layers("cnn4", shape, 8)
    for channels in (128, 256, 512):
        layers.convolution(channels, 3, norm, padding=1, pool=2)
    layers.hidden(1024, norm)
    return layers.output(classes)


def fedbs_mnist(shape: tuple[int, ...], classes: int, *, norm: Norm = "batch") -> nn.Module:
    """Build FedBS's network for MNIST and Fashion-MNIST: two 5x5 convolutions of 16 and 32 channels, one linear layer.

    29,034 parameters for 28x28x1 inputs and 10 classes.

    Args:
        norm: normaliser behind each convolution.

    Raises:
        InputError: the data are not images of at least 4x4.

    Paper: Idrissi et al., "FedBS: Learning on Non-IID Data in Federated Learning using Batch Normalization", section V.

    Deviations:
        The paper's "1568 units" are read as the inputs of the linear layer: 32x7x7 with a padding of 2.
    """
    layers = _layers("fedbs_mnist", shape, 4)
    for channels in (16, 32):
        layers.convolution(channels, 5, norm, padding=2, pool=2)
    return layers.output(classes)


def fedbs_cifar(shape: tuple[int, ...], classes: int, *, norm: Norm = "batch") -> nn.Module:
    """Build FedBS's network for CIFAR-10: a 5x5 and three 3x3 convolutions, 100 to 500 channels, three linear layers.

    2,865,430 parameters for 32x32x3 inputs and 10 classes.

    Args:
        norm: normaliser behind each convolution.

    Raises:
        InputError: the data are not images of at least 2x2.

    Paper: Idrissi et al., "FedBS: Learning on Non-IID Data in Federated Learning using Batch Normalization", section V.

    Deviations:
        The paper's "4500, 270, 150 units" are read as the inputs of the linear layers. A padding of 2 in all
        convolutions leaves 500x3x3 = 4500. The ReLU between linear layers is not mentioned in the paper.
    """
    layers = _layers("fedbs_cifar", shape, 2)
    for channels, kernel in ((100, 5), (150, 3), (250, 3), (500, 3)):
        layers.convolution(channels, kernel, norm, padding=2, pool=2)
    layers.hidden(270, "none")
    layers.hidden(150, "none")
    return layers.output(classes)


def digit_cnn(shape: tuple[int, ...], classes: int, *, norm: Norm = "batch") -> nn.Module:
    """Build FedBN's six-layer network for digits: three 5x5 convolutions, hidden layers of 2048 and 512.

    14,219,210 parameters for 28x28x3 inputs and 10 classes.

    Args:
        norm: normaliser behind each convolution and hidden layer.

    Raises:
        InputError: the data are not images of at least 4x4.

    Paper: Li et al., "FedBN", ICLR 2021, appendix D.2.

    Deviations:
        Table 3 prints Conv2D(64, 128, 5, 1, 2) twice. This model has it once: a second one could not take the 128
        channels of the first, and the paper counts six layers.
    """
    layers = _layers("digit_cnn", shape, 4)
    layers.convolution(64, 5, norm, padding=2, pool=2)
    layers.convolution(64, 5, norm, padding=2, pool=2)
    layers.convolution(128, 5, norm, padding=2)
    layers.hidden(2048, norm)
    layers.hidden(512, norm)
    return layers.output(classes)


def alexnet_bn(shape: tuple[int, ...], classes: int, *, norm: Norm = "batch") -> nn.Module:
    """Build FedBN's AlexNet for Office-Caltech10 and DomainNet: five convolutions, hidden layers of 4096 and 4096.

    57,063,498 parameters for 256x256x3 inputs and 10 classes.

    Args:
        norm: normaliser behind each convolution and hidden layer.

    Raises:
        InputError: the data are not images of at least 63x63.

    Paper: Li et al., "FedBN", ICLR 2021, appendix D.3.

    Deviations:
        Table 9 prints Conv2D(64, 128, 5, 1, 2) between its second and third convolution. It fits neither neighbour
        and is left out. Like the table, the model has no dropout.
    """
    layers = _layers("alexnet_bn", shape, 63)
    layers.convolution(64, 11, norm, stride=4, padding=2, pool=3)
    layers.convolution(192, 5, norm, padding=2, pool=3)
    layers.convolution(384, 3, norm, padding=1)
    layers.convolution(256, 3, norm, padding=1)
    layers.convolution(256, 3, norm, padding=1, pool=3)
    layers.average(6)
    layers.hidden(4096, norm)
    layers.hidden(4096, norm)
    return layers.output(classes)


def vgg16(shape: tuple[int, ...], classes: int, *, norm: Norm = "none") -> nn.Module:
    """Build VGG16 without adaptive pooling and dropout: thirteen 3x3 convolutions, hidden layers of 4096 and 4096.

    81,860,423 parameters for 200x150x3 inputs and 7 classes; FedMMB, section 4, counts about 82 million. The model
    flattens 6x4x512 values. torchvision's VGG16 pools to 7x7 and has more parameters.

    Args:
        norm: normaliser behind each convolution and hidden layer.

    Raises:
        InputError: the data are not images of at least 32x32.

    Paper: Simonyan and Zisserman, 2015, configuration D, as Keras builds it for FedMMB.
    """
    layers = _layers("vgg16", shape, 32)
    for channels, count in VGG16_STAGES:
        for number in range(1, count + 1):
            layers.convolution(channels, 3, norm, padding=1, pool=2 if number == count else 0)
    layers.hidden(4096, norm)
    layers.hidden(4096, norm)
    return layers.output(classes)


def _layers(model: str, shape: tuple[int, ...], least: int, remedy: str = "") -> LayerStack:
    """Return an empty network for images; see `image_shape`."""
    from raysim.models.networks import LayerStack

    return LayerStack(*image_shape(model, shape, least, remedy))
