"""Models of linear layers: logistic regression and the multilayer perceptron."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from raysim.models.checks import Count, positives
from raysim.models.keys import Norm

if TYPE_CHECKING:
    from torch import nn


def logistic(shape: tuple[int, ...], classes: int) -> nn.Module:
    """Build a logistic regression: one linear layer on the flattened input.

    Args:
        shape: shape of one sample; the model takes x [n, *shape].
        classes: number of outputs, the logits [n, classes].
    """
    from torch import nn

    model = nn.Sequential()
    model.add_module("flatten", nn.Flatten())
    model.add_module("output", nn.Linear(math.prod(shape), classes))
    return model


def mlp(
    shape: tuple[int, ...], classes: int, *, hidden: tuple[Count, ...] = (200, 200), norm: Norm = "none"
) -> nn.Module:
    """Build a multilayer perceptron: linear, norm, ReLU for each hidden width, on the flattened input.

    With widths 784-200-200-10 it is the "2NN" of McMahan et al., AISTATS 2017, section 3.

    Args:
        shape: shape of one sample; the model takes x [n, *shape].
        classes: number of outputs, the logits [n, classes].
        hidden: widths of the hidden layers.
        norm: normaliser behind each hidden layer.

    Raises:
        InputError: a width is not positive.
    """
    from torch import nn

    from raysim.models.norm import batch_norm

    model = nn.Sequential()
    model.add_module("flatten", nn.Flatten())
    inputs = math.prod(shape)
    for i, width in enumerate(positives("hidden", hidden), start=1):
        model.add_module(f"linear{i}", nn.Linear(inputs, width))
        for layer in batch_norm(norm, width, spatial=False):
            model.add_module(f"norm{i}", layer)
        model.add_module(f"relu{i}", nn.ReLU())
        inputs = width
    model.add_module("output", nn.Linear(inputs, classes))
    return model
