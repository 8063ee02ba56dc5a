"""Models of linear layers: logistic regression and the multilayer perceptron."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from raysim.models.keys import Count, Norm, positives

if TYPE_CHECKING:
    from torch import nn


def logistic(shape: tuple[int, ...], classes: int) -> nn.Module:
    """Build a logistic regression: one linear layer on the flattened input.

    Args:
        shape: shape of one sample; the model takes x [n, *shape].
        classes: number of outputs, the logits [n, classes].
    """
    from raysim.models.stack import LayerStack

    return LayerStack(math.prod(shape)).output(classes)


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
    from raysim.models.stack import LayerStack

    layers = LayerStack(math.prod(shape))
    for width in positives("hidden", hidden):
        layers.hidden(width, norm)
    return layers.output(classes)
