"""MobileNetV2 of Sandler et al., "MobileNetV2: Inverted Residuals and Linear Bottlenecks", by torchvision."""

from torch import nn

from raysim.common.errors import InputError
from raysim.models.images import image_of
from raysim.models.norm import Norm
from raysim.models.vision import first_convolution, fitted


def mobilenet_v2(shape: tuple[int, ...], classes: int, *, dropout: float = 0.2, norm: Norm = "batch") -> nn.Module:
    """MobileNetV2: torchvision's, with its initial weights; none are downloaded.

    With 3 channels and 10 classes 2,236,682 parameters; RADFed trains it on CIFAR-10 at 224x224.

    Args:
        shape: one image's (channels, height, width); the model takes x [n, *shape].
        classes: outputs, the logits [n, classes].
        dropout: before the output, in [0, 1).
        norm: behind each convolution; "none" leaves these without biases, too.

    Raises:
        InputError: the data are not images, or the dropout is no share.
    """
    import torchvision

    channels, _, _ = image_of("mobilenet_v2", shape)
    if not 0 <= dropout < 1:
        raise InputError(f"dropout is {dropout!r}, but must be a share from 0 and below 1: set model.dropout = 0.2")
    model = torchvision.models.mobilenet_v2(weights=None, num_classes=classes, dropout=dropout)
    model.features[0][0] = first_convolution(channels, 32, kernel=3, stride=2)
    return fitted(model, norm)
