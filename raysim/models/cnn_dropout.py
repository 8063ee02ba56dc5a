"""The convolutional network with dropout of Reddi et al., "Adaptive Federated Optimization", 2021, table 4."""

from torch import nn

from raysim.models.checks import positive
from raysim.models.images import image_of


def cnn_dropout(shape: tuple[int, ...], classes: int, *, hidden: int = 128) -> nn.Module:
    """Convolutional network with dropout: two 3x3 convolutions without padding, one 2x2 max pooling, a hidden layer.

    With 28x28x1 inputs and 62 classes 1,206,590 parameters, as in the paper.

    Args:
        shape: one image's (channels, height, width); the model takes x [n, *shape].
        classes: outputs, the logits [n, classes].
        hidden: width of the linear layer before the output.

    Raises:
        InputError: the data are not images of at least 6x6, or the width is not positive.
    """
    hidden = positive("hidden", hidden)
    inputs, height, width = image_of("cnn_dropout", shape, 6)
    pooled = 64 * ((height - 4) // 2) * ((width - 4) // 2)
    model = nn.Sequential()
    model.add_module("conv1", nn.Conv2d(inputs, 32, kernel_size=3))
    model.add_module("relu1", nn.ReLU())
    model.add_module("conv2", nn.Conv2d(32, 64, kernel_size=3))
    model.add_module("relu2", nn.ReLU())
    model.add_module("pool", nn.MaxPool2d(2))
    model.add_module("dropout1", nn.Dropout(0.25))
    model.add_module("flatten", nn.Flatten())
    model.add_module("linear", nn.Linear(pooled, hidden))
    model.add_module("relu3", nn.ReLU())
    model.add_module("dropout2", nn.Dropout(0.5))
    model.add_module("output", nn.Linear(hidden, classes))
    return model
