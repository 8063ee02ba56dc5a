"""Models that client updates train stacked."""

import numpy as np
import torch
from torch import nn

from algorithms import (
    Packed,
)
from tests.kit.federation import perceptron


def linear() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3))


def sigmoid() -> nn.Module:
    return nn.Sequential(nn.Sequential(nn.Linear(4, 6, bias=False), nn.Sigmoid()), nn.Linear(6, 3))


def group_norm() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 6), nn.GroupNorm(2, 6), nn.ReLU(), nn.Dropout(0.3), nn.Linear(6, 3))


def batch_norm() -> nn.Module:
    return perceptron(norm=True)


def convolution() -> nn.Module:
    return nn.Sequential(
        nn.Unflatten(1, (1, 2, 2)),
        nn.Conv2d(1, 4, 3, padding=1),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.Dropout2d(0.25),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(4, 3),
    )


MODELS = {function.__name__: function for function in (linear, sigmoid, group_norm, batch_norm, convolution)}


def seeded(name: str) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        return MODELS[name]()


def differ(a: Packed, b: Packed) -> float:
    assert np.array_equal(a.integers, b.integers)
    return float(np.abs(a.floats - b.floats).max(initial=0))
