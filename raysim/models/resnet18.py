"""ResNet-18 of He et al., "Deep Residual Learning for Image Recognition", by torchvision."""

from typing import Literal, TypeAlias, get_args

from torch import nn

from raysim.common.errors import unknown
from raysim.models.images import image_of
from raysim.models.norm import Norm
from raysim.models.vision import first_convolution, fitted

Stem: TypeAlias = Literal["imagenet", "small"]

STEMS: tuple[str, ...] = get_args(Stem)


def resnet18(shape: tuple[int, ...], classes: int, *, stem: Stem = "imagenet", norm: Norm = "batch") -> nn.Module:
    """ResNet-18: torchvision's, with its initial weights; for ImageNet or, with another stem, for small images.

    With 3 channels and 1000 classes 11,689,512 parameters; FixBN trains it on ImageNet and Tiny-ImageNet.

    Args:
        shape: one image's (channels, height, width); the model takes x [n, *shape].
        classes: outputs, the logits [n, classes].
        stem: "imagenet" halves the image twice before the first block, by a 7x7 convolution and a pool; "small" has
            a 3x3 convolution instead, which keeps the size.
        norm: behind each convolution; "none" leaves these without biases, too.

    Raises:
        InputError: the data are not images, or the stem or norm is not known.
    """
    import torchvision

    channels, _, _ = image_of("resnet18", shape)
    if stem not in STEMS:
        raise unknown(f"stem {stem!r}", stem, STEMS)
    model = torchvision.models.resnet18(weights=None, num_classes=classes)
    if stem == "small":
        model.conv1 = first_convolution(channels, 64, kernel=3, stride=1)
        model.maxpool = nn.Identity()
    else:
        model.conv1 = first_convolution(channels, 64, kernel=7, stride=2)
    return fitted(model, norm)
