"""Small models of each kind, and rounds with them."""

from collections.abc import Callable
from functools import cache

import torch
from torch import nn

from algorithms import (
    Algorithm,
    Compute,
    State,
    begin,
    next_round,
)
from raysim.fleet.inline import InlineFleet
from tests.kit.federation import clients, perceptron


class Residual(nn.Module):
    """Two residual blocks, the second with a shortcut that has a convolution and batch norm of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Unflatten(1, (1, 2, 2)), nn.Conv2d(1, 4, 3, padding=1, bias=False))
        self.first = nn.Sequential(nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 4, 3, padding=1, bias=False))
        self.second = nn.Sequential(nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 6, 3, 2, padding=1, bias=False))
        self.shortcut = nn.Sequential(nn.Conv2d(4, 6, 1, 2, bias=False), nn.BatchNorm2d(6))
        self.head = nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        x = x + self.first(x)
        x = self.shortcut(x) + self.second(x)
        return self.head(x.mean((2, 3)))


def convolution() -> nn.Module:
    return nn.Sequential(
        nn.Unflatten(1, (1, 2, 2)),
        nn.Conv2d(1, 4, 3, padding=1),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(16, 3),
    )


MODELS: dict[str, Callable[[], nn.Module]] = {
    "mlp": perceptron,
    "cnn with batch norm": convolution,
    "residual net with batch norm": Residual,
}


@cache
def entries(model: str) -> dict[str, torch.Tensor]:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(2)
        return MODELS[model]().state_dict()


def made(model: str, double: bool) -> nn.Module:
    module = MODELS[model]()
    module.load_state_dict(entries(model))
    return module.double() if double else module


Federation = Callable[..., InlineFleet]


SIZES = (7, 4, 1, 9, 0, 8)


def simulate(
    federation: Federation, algorithm: Algorithm, model: str, execution: str, precision: str, rounds: int
) -> tuple[State, InlineFleet]:
    compute = Compute(execution, precision)  # type: ignore[arg-type]
    double = precision == "fp64"
    fleet = federation(clients(SIZES), made(model, double), algorithm.sharing, 3, compute, 3)
    state = begin(made(model, double), fleet, 1, rounds)
    for number in range(1, rounds + 1):
        state = next_round(state, algorithm.computed(compute), fleet, last=number == rounds)
    return state, fleet
