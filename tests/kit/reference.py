"""What plain references are made of: torch modules in float64, trained and averaged without the engine."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from algorithms import (
    Algorithm,
    Compute,
    Local,
    Purpose,
    State,
    generator,
)
from algorithms.fedprox import Proximal
from raysim.fleet.inline import InlineFleet
from tests.kit.federation import Samples, clients, perceptron
from tests.kit.rounds import simulate

FP64 = Compute("sequential", precision="fp64")
Batches = Sequence[np.ndarray]
Values = dict[str, torch.Tensor]

DATA = clients((11, 4, 9, 23, 6, 7), seed=1)
"""Six clients of different sizes; batches of four leave some a batch of one, which batch norm refuses."""


def module() -> nn.Sequential:
    """The small perceptron with batch norm, in float64."""
    return perceptron(True).double()


def engine(federation: Callable[..., InlineFleet], algorithm: Algorithm, rounds: int) -> tuple[State, InlineFleet]:
    """The engine's run on `DATA`, in float64, one client update after the other."""
    fleet = federation(DATA, module(), algorithm.sharing, compute=FP64)
    return simulate(algorithm, fleet, module(), rounds), fleet


def drawn(local: Local, data: Samples, counter: int, client: int, least: int = 2) -> list[np.ndarray]:
    """The batches of a client update: those of the engine's own random stream, without any that batch norm refuses."""
    rng = generator(0, Purpose.BATCHES, counter, client)
    return [rows for rows in local.passes(len(data[1]), rng) if len(rows) >= least]


def train(model: nn.Module, data: Samples, batches: Batches, step: Callable[[nn.Module], None]) -> float:
    """Go through batches, the gradients in `.grad` when `step` is called; the mean loss of the samples."""
    x, y = data[0].double(), data[1]
    losses: list[float] = []
    for rows in batches:
        model.zero_grad()
        loss = cross_entropy(model(x[rows]), y[rows])
        loss.backward()
        step(model)
        losses += [loss.item()] * len(rows)
    return float(np.mean(losses)) if losses else float("nan")


def sgd(lr: float) -> Callable[[nn.Module], None]:
    """One plain step."""

    @torch.no_grad()
    def step(model: nn.Module) -> None:
        for p in model.parameters():
            p.sub_(lr * p.grad)

    return step


def mean(models: Sequence[nn.Module], weights: Sequence[float]) -> Values:
    """The weighted mean of floating entries, the largest of counters."""
    shares = np.asarray(weights, np.float64) / np.sum(weights)
    states = [model.state_dict() for model in models]
    return {
        name: sum(w * s[name] for w, s in zip(shares, states, strict=True))
        if value.is_floating_point()
        else max(s[name] for s, w in zip(states, shares, strict=True) if w)
        for name, value in states[0].items()
    }


def agree(state: State, fleet: InlineFleet, values: Values) -> None:
    """Whether the engine's model has these values, to 1e-9."""
    found = fleet.layouts.shared.unpack(state.model)
    for name, value in values.items():
        if name in found:
            np.testing.assert_allclose(found[name], value.detach().numpy(), rtol=1e-9, atol=1e-11, err_msg=name)


def update(module: torch.nn.Module, data: Samples, number: int, client: int, local: Local) -> bool:
    """Plain SGD from the module as it is, near it where there is a proximal term; False where no batch is left."""
    x, y = data[0].double(), data[1]
    received = [parameter.detach().clone() for parameter in module.parameters()]
    optimiser = torch.optim.SGD(module.parameters(), local.lr)
    batches = [b for b in local.passes(len(y), generator(0, Purpose.BATCHES, number, client)) if len(b) > 1]
    for rows in batches:
        optimiser.zero_grad()
        loss = cross_entropy(module(x[rows]), y[rows])
        near = sum(((p - r) ** 2).sum() for p, r in zip(module.parameters(), received, strict=True))
        mu = local.method.mu if isinstance(local.method, Proximal) else 0.0
        (loss + mu / 2 * near).backward()
        optimiser.step()
    return bool(batches)
