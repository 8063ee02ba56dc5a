"""Multinomial logistic regression."""

import math

from torch import nn

from raysim.errors import InputError
from raysim.models.norm import NORMS


def logistic(shape: tuple[int, ...], classes: int, *, norm: str = "none") -> nn.Module:
    """Logistic regression: one linear layer on the flattened input.

    Args:
        shape: one sample's shape; the model takes x [n, *shape].
        classes: outputs, the logits [n, classes].
        norm: only "none": there is no layer between which to normalise.

    Raises:
        InputError: another norm is asked for.
    """
    if norm != "none":
        kind = "has no layer to put it behind" if norm in NORMS else "is not known"
        raise InputError(f'norm {norm!r} {kind}: logistic takes norm = "none" only; choose it, or model "mlp" or "cnn"')
    model = nn.Sequential()
    model.add_module("flatten", nn.Flatten())
    model.add_module("output", nn.Linear(math.prod(shape), classes))
    return model
