"""Networks of residual blocks: ResNet-20 for CIFAR, torchvision's ResNet-18 and MobileNetV2, and DeepLabv3+ on them.

All builders take `shape`, (channels, height, width) of one image, and `classes`, the number of outputs. The model takes
x [n, *shape] and returns the logits [n, classes], DeepLabv3+ those of each pixel [n, classes, height, width].
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

from annotated_types import Ge, Lt

from raysim.models.keys import Norm, image_shape

if TYPE_CHECKING:
    from torch import nn

RESNET20_WIDTHS = (16, 32, 64)
RESNET20_BLOCKS = 3
"""Blocks of each width: 6 x 3 + 2 = 20 layers."""

Stem: TypeAlias = Literal["imagenet", "small"]

Dropout: TypeAlias = Annotated[float, Ge(0), Lt(1)]

Backbone: TypeAlias = Literal["mobilenet_v2", "resnet50"]


def resnet20(shape: tuple[int, ...], classes: int, *, norm: Norm = "batch") -> nn.Module:
    """Build ResNet-20 for small images: three stages of three blocks, 16 to 64 channels.

    269,722 parameters for 32x32x3 inputs and 10 classes. With its 19 batch-norm layers FixBN's Table 5 counts
    3 x 19 + 1 = 58 exchanges. Shortcuts have no parameters.

    Args:
        norm: normaliser behind each convolution; with "none" convolutions have biases.

    Raises:
        InputError: the data are not images.

    Paper: He et al., "Deep Residual Learning for Image Recognition", section 4.2.
    """
    from torch import nn

    from raysim.models.networks import ResidualBlock, convolution

    inputs, _, _ = image_shape("resnet20", shape)
    model = nn.Sequential()
    model.add_module("stem", nn.Sequential(*convolution(inputs, RESNET20_WIDTHS[0], 1, norm), nn.ReLU()))
    inputs = RESNET20_WIDTHS[0]
    for stage, width in enumerate(RESNET20_WIDTHS, start=1):
        for block in range(1, RESNET20_BLOCKS + 1):
            stride = 2 if block == 1 and stage > 1 else 1
            model.add_module(f"stage{stage}block{block}", ResidualBlock(inputs, width, stride, norm))
            inputs = width
    model.add_module("average", nn.AdaptiveAvgPool2d(1))
    model.add_module("flatten", nn.Flatten())
    model.add_module("output", nn.Linear(inputs, classes))
    return model


def resnet18(shape: tuple[int, ...], classes: int, *, stem: Stem = "imagenet", norm: Norm = "batch") -> nn.Module:
    """Build torchvision's ResNet-18 with random initial weights, for ImageNet or, with another stem, for small images.

    11,689,512 parameters for 3 channels and 1000 classes. FixBN trains it on ImageNet and Tiny-ImageNet.

    Args:
        stem: "imagenet" halves the image twice before the first block, by a 7x7 convolution and a pool; "small" has
            a 3x3 convolution instead, which keeps the size.
        norm: normaliser behind each convolution; "none" leaves convolutions without biases.

    Raises:
        InputError: the data are not images.

    Paper: He et al., "Deep Residual Learning for Image Recognition".
    """
    from torch import nn

    from raysim.common.vision import torchvision
    from raysim.models.networks import adapted, first_convolution

    channels, _, _ = image_shape("resnet18", shape)
    model = torchvision.models.resnet18(weights=None, num_classes=classes)
    if stem == "small":
        model.conv1 = first_convolution(channels, 64, kernel=3, stride=1)
        model.maxpool = nn.Identity()
    else:
        model.conv1 = first_convolution(channels, 64, kernel=7, stride=2)
    return adapted(model, norm)


def mobilenet_v2(shape: tuple[int, ...], classes: int, *, dropout: Dropout = 0.2, norm: Norm = "batch") -> nn.Module:
    """Build torchvision's MobileNetV2 with random initial weights.

    2,236,682 parameters for 3 channels and 10 classes. RADFed trains it on CIFAR-10 at 224x224.

    Args:
        dropout: dropout probability before the output, in [0, 1).
        norm: normaliser behind each convolution; "none" leaves convolutions without biases.

    Raises:
        InputError: the data are not images.

    Paper: Sandler et al., "MobileNetV2: Inverted Residuals and Linear Bottlenecks".
    """
    from raysim.common.vision import torchvision
    from raysim.models.networks import adapted, first_convolution

    channels, _, _ = image_shape("mobilenet_v2", shape)
    model = torchvision.models.mobilenet_v2(weights=None, num_classes=classes, dropout=dropout)
    model.features[0][0] = first_convolution(channels, 32, kernel=3, stride=2)
    return adapted(model, norm)


def deeplab_v3plus(
    shape: tuple[int, ...], classes: int, *, backbone: Backbone = "mobilenet_v2", norm: Norm = "batch"
) -> nn.Module:
    """Build DeepLabv3+ for segmentation: backbone, atrous pyramid, decoder; output stride 16.

    For 3 channels and 19 classes it has 5,815,539 parameters on MobileNetV2 and 40,351,667 on ResNet-50. FixBN,
    Table 3 and appendix A.1, trains both on Cityscapes. Labels are images of classes.

    Args:
        backbone: torchvision's network to start with, its initial weights random.
        norm: normaliser behind each convolution except the last; "none" leaves convolutions without biases.

    Raises:
        InputError: the data are not images.

    Paper: Chen et al., "Encoder-Decoder with Atrous Separable Convolution for Semantic Image Segmentation".

    Deviations:
        Convolutions are plain. In the paper they are separable with Xception, and optional with other backbones. The
        pyramid is torchvision's, with a dropout of 0.5 that the text does not mention.
    """
    from raysim.models.networks import BACKBONES, DeepLabV3Plus, adapted

    channels, _, _ = image_shape("deeplab_v3plus", shape)
    low, high, widths = BACKBONES[backbone](channels)
    return adapted(DeepLabV3Plus(low, high, widths, classes), norm)
