"""Rounds of the small federation, and plain training of one client."""

from collections.abc import Callable

import torch
from torch.nn.functional import cross_entropy

from algorithms import (
    Algorithm,
    Local,
    Packed,
    Purpose,
    State,
    begin,
    generator,
    next_round,
)
from raysim.fleet.inline import InlineFleet
from tests.kit.federation import Samples, perceptron

Federation = Callable[..., InlineFleet]


SIZES = (11, 4, 1, 23, 0, 8)


def simulate(algorithm: Algorithm, fleet: InlineFleet, module: torch.nn.Module, rounds: int, seed: int = 0) -> State:
    state = begin(module, fleet, seed, rounds)
    for number in range(1, rounds + 1):
        state = next_round(state, algorithm, fleet, last=number == rounds)
    return state


def run(federation: Federation, algorithm: Algorithm, data: list[Samples], rounds: int = 5, norm: bool = True) -> State:
    fleet = federation(data, perceptron(norm), algorithm.sharing)
    return simulate(algorithm, fleet, perceptron(norm), rounds)


def same(a: Packed, b: Packed) -> bool:
    return a.floats.tobytes() == b.floats.tobytes() and a.integers.tobytes() == b.integers.tobytes()


def train(module: torch.nn.Module, data: Samples, local: Local, number: int, client: int, seed: int = 0) -> None:
    """Train a client with plain modules and plain SGD."""
    optimiser = torch.optim.SGD(module.parameters(), local.lr)
    x, y = data
    for rows in local.passes(len(y), generator(seed, Purpose.BATCHES, number, client)):
        optimiser.zero_grad()
        cross_entropy(module(x[rows]), y[rows]).backward()
        optimiser.step()
