"""A small convolutional network for images."""

from torch import nn

from raysim.models.checks import positive, positives
from raysim.models.images import image_of
from raysim.models.norm import normalise


def cnn(
    shape: tuple[int, ...],
    classes: int,
    *,
    channels: tuple[int, ...] = (32, 64),
    hidden: int = 128,
    norm: str = "none",
) -> nn.Module:
    """Convolutional network: 3x3 convolution, norm, ReLU and 2x2 max pooling, repeated; then a hidden layer.

    Args:
        shape: one image's (channels, height, width); the model takes x [n, *shape].
        classes: outputs, the logits [n, classes].
        channels: outputs of each convolution; every one halves height and width.
        hidden: width of the linear layer before the output.
        norm: "none" or "batch", behind each convolution and the hidden layer; see `raysim.models.norm` for what becomes
            of it.

    Raises:
        InputError: the data are not images or too small, or a width is not positive.
    """
    channels, hidden = positives("channels", channels), positive("hidden", hidden)
    inputs, height, width = image_of("cnn", shape, 2 ** len(channels), "use fewer model.channels")
    model = nn.Sequential()
    for i, outputs in enumerate(channels, start=1):
        model.add_module(f"conv{i}", nn.Conv2d(inputs, outputs, kernel_size=3, padding=1))
        for layer in normalise(norm, outputs, spatial=True):
            model.add_module(f"norm{i}", layer)
        model.add_module(f"relu{i}", nn.ReLU())
        model.add_module(f"pool{i}", nn.MaxPool2d(2))
        inputs, height, width = outputs, height // 2, width // 2
    model.add_module("flatten", nn.Flatten())
    model.add_module("linear", nn.Linear(inputs * height * width, hidden))
    for layer in normalise(norm, hidden, spatial=False):
        model.add_module("norm", layer)
    model.add_module("relu", nn.ReLU())
    model.add_module("output", nn.Linear(hidden, classes))
    return model
