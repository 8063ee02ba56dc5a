"""The loads' models in PyTorch, for the peers that train with it."""

from __future__ import annotations

import math
from itertools import pairwise

from loads import HIDDEN, Load
from torch import nn


def build(load: Load) -> nn.Module:
    """A module from float32 [n, *shape] to logits [n, classes]."""
    if load.model == "mlp":
        widths = (math.prod(load.shape), *HIDDEN)
        layers: list[nn.Module] = [nn.Flatten()]
        for before, after in pairwise(widths):
            layers += [nn.Linear(before, after), nn.ReLU()]
        return nn.Sequential(*layers, nn.Linear(widths[-1], load.classes))
    # The network of pfl-research's CIFAR-10 benchmark (its `simple_cnn`): the convolutions are not padded, so that
    # 32 pixels become 30, 28 and, pooled, 14: 64 * 14 * 14 = 12,544 numbers enter the first dense layer.
    channels, height, width = load.shape
    flat = 64 * ((height - 4) // 2) * ((width - 4) // 2)
    return nn.Sequential(
        nn.Conv2d(channels, 32, 3),
        nn.ReLU(),
        nn.Conv2d(32, 64, 3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Dropout(0.25),
        nn.Flatten(),
        nn.Linear(flat, 128),
        nn.ReLU(),
        nn.Dropout(0.5),
        nn.Linear(128, load.classes),
    )
