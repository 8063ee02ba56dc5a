"""Segmentation networks: DeepLabv3+."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

from raysim.common.errors import unknown
from raysim.models.checks import image_shape
from raysim.models.keys import Norm

if TYPE_CHECKING:
    from torch import nn

Backbone: TypeAlias = Literal["mobilenet_v2", "resnet50"]


def deeplab_v3plus(
    shape: tuple[int, ...], classes: int, *, backbone: Backbone = "mobilenet_v2", norm: Norm = "batch"
) -> nn.Module:
    """Build DeepLabv3+ for segmentation: backbone, atrous pyramid, decoder; output stride 16.

    For 3 channels and 19 classes it has 5,815,539 parameters on MobileNetV2 and 40,351,667 on ResNet-50. FixBN,
    Table 3 and appendix A.1, trains both on Cityscapes. Labels are images of classes.

    Args:
        shape: (channels, height, width) of one image; the model takes x [n, *shape].
        classes: classes of a pixel; the logits are [n, classes, height, width].
        backbone: torchvision's network to start with, its initial weights random.
        norm: normaliser behind each convolution except the last; "none" leaves convolutions without biases.

    Raises:
        InputError: the data are not images, or the backbone or norm is not known.

    Paper: Chen et al., "Encoder-Decoder with Atrous Separable Convolution for Semantic Image Segmentation".

    Deviations:
        Convolutions are plain. In the paper they are separable with Xception, and optional with other backbones. The
        pyramid is torchvision's, with a dropout of 0.5 that the text does not mention.
    """
    from raysim.models.residual_layers import adapted
    from raysim.models.segmentation.deeplab import BACKBONES, DeepLabV3Plus

    channels, _, _ = image_shape("deeplab_v3plus", shape)
    if backbone not in BACKBONES:
        raise unknown(f"backbone {backbone!r}", backbone, BACKBONES)
    low, high, widths = BACKBONES[backbone](channels)
    return adapted(DeepLabV3Plus(low, high, widths, classes), norm)
