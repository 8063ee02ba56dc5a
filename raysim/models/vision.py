"""torchvision's networks, made to fit: other channels, no norm, and no layer that overwrites its input."""

from torch import nn

from algorithms.engine.batch_norm import is_batch_norm
from raysim.models.norm import Norm
from raysim.models.stack import built


def fitted(module: nn.Module, norm: Norm) -> nn.Module:
    """The network with its batch norm or, with `norm = "none"`, without, and its activations not in place.

    Raises:
        InputError: the norm is not known.
    """
    bare = built(norm) == "none"
    for parent in list(module.modules()):
        if isinstance(parent, (nn.ReLU, nn.ReLU6)):
            # Whoever observes a norm's output would see it overwritten.
            parent.inplace = False
        for name, layer in parent.named_children():
            if bare and is_batch_norm(layer):
                setattr(parent, name, nn.Identity())
    return module


def first_convolution(channels: int, outputs: int, kernel: int, stride: int) -> nn.Conv2d:
    """A first convolution for images of so many channels, initialised as torchvision does: He et al.'s, by fan-out."""
    layer = nn.Conv2d(channels, outputs, kernel, stride, padding=kernel // 2, bias=False)
    nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
    return layer
