"""The multilayer perceptron: 784-200-200-10 is the "2NN" of McMahan et al., AISTATS 2017, section 3."""

import math

from torch import nn

from raysim.models.checks import positives
from raysim.models.norm import normalise


def mlp(
    shape: tuple[int, ...],
    classes: int,
    *,
    hidden: tuple[int, ...] = (200, 200),
    norm: str = "none",
) -> nn.Module:
    """Multilayer perceptron: linear, norm, ReLU for each hidden width, on the flattened input.

    Args:
        shape: one sample's shape; the model takes x [n, *shape].
        classes: outputs, the logits [n, classes].
        hidden: widths of the hidden layers.
        norm: "none" or "batch", behind each hidden layer; see `raysim.models.norm` for what becomes of it.

    Raises:
        InputError: a width is not positive.
    """
    model = nn.Sequential()
    model.add_module("flatten", nn.Flatten())
    inputs = math.prod(shape)
    for i, width in enumerate(positives("hidden", hidden), start=1):
        model.add_module(f"linear{i}", nn.Linear(inputs, width))
        for layer in normalise(norm, width, spatial=False):
            model.add_module(f"norm{i}", layer)
        model.add_module(f"relu{i}", nn.ReLU())
        inputs = width
    model.add_module("output", nn.Linear(inputs, classes))
    return model
