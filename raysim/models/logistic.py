"""Multinomial logistic regression."""

import math

from torch import nn


def logistic(shape: tuple[int, ...], classes: int) -> nn.Module:
    """Logistic regression: one linear layer on the flattened input.

    Args:
        shape: one sample's shape; the model takes x [n, *shape].
        classes: outputs, the logits [n, classes].
    """
    model = nn.Sequential()
    model.add_module("flatten", nn.Flatten())
    model.add_module("output", nn.Linear(math.prod(shape), classes))
    return model
