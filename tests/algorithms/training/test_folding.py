"""Linear layers that take their steps in the backward pass train as those that store a gradient."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from algorithms import (
    Algorithm,
    Compute,
    Local,
    Participation,
    State,
    begin,
    fedavg,
    feddyn,
    moon,
    next_round,
    scaffold,
)
from algorithms.fedprox import Proximal
from algorithms.training import folding
from raysim.fleet.inline import InlineFleet
from tests.kit.federation import clients
from tests.kit.stacked import differ

Federation = Callable[..., InlineFleet]
SIZES = (7, 4, 1, 9, 0)
LOCAL = Local(lr=0.05, batch_size=4)
LOCALS = {
    "plain": LOCAL,
    "momentum": replace(LOCAL, momentum=0.9),
    "decay": replace(LOCAL, weight_decay=0.1),
    "all": replace(LOCAL, momentum=0.9, weight_decay=0.1, method=Proximal(0.5), lr_schedule="cosine"),
    "head": replace(LOCAL, part="head", weight_decay=0.1),
    "body": replace(LOCAL, part="body", momentum=0.9),
    "frozen affine": replace(LOCAL, affine="frozen"),
}
ALGORITHMS = {name: fedavg(Participation(), local) for name, local in LOCALS.items()} | {
    "scaffold": scaffold(Participation(), LOCAL),
    "feddyn": feddyn(Participation(), LOCAL),
}


class Own(nn.Module):
    """A user's own layer."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.detach()


class Tied(nn.Module):
    """The first layer's weight is read again, and the second layer is called twice."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.twice, self.last = nn.Linear(4, 5), nn.Linear(5, 5), nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.twice(self.twice(self.first(x)).tanh()).tanh()
        y: torch.Tensor = self.last(x @ self.first.weight)
        return y


def perceptron() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 5, bias=False), nn.Linear(5, 3))


def sequence() -> nn.Module:
    """A linear layer on three dimensions."""
    return nn.Sequential(nn.Unflatten(1, (2, 2)), nn.Linear(2, 3), nn.Tanh(), nn.Flatten(), nn.Linear(6, 3))


MODELS = {"perceptron": perceptron, "sequence": sequence, "tied": Tied}


def trained(
    federation: Federation,
    monkeypatch: pytest.MonkeyPatch,
    algorithm: Algorithm,
    model: str,
    least: int,
    precision: str,
) -> State:
    """Return the state after two rounds, in which layers of at least `least` weights fold."""
    monkeypatch.setattr(folding, "LEAST_VALUES", least)

    def module() -> nn.Module:
        torch.manual_seed(0)
        made = MODELS[model]()
        return made.double() if precision == "fp64" else made

    compute = Compute("sequential", precision)  # type: ignore[arg-type]
    fleet = federation(clients(SIZES), module(), algorithm.sharing, 5, compute, 1)
    state = begin(module(), fleet, seed=4, rounds=2)
    for number in (1, 2):
        state = next_round(state, algorithm, fleet, last=number == 2)
    return state


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("name", ALGORITHMS)
def test_folded_steps_equal_stored_gradients(
    name: str, model: str, federation: Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    states = [trained(federation, monkeypatch, ALGORITHMS[name], model, least, "fp64") for least in (1, 2**62)]
    # Rounding: some ten steps, each of a few sums of numbers below 10.
    assert differ(states[0].model, states[1].model) < 1e-12
    assert states[0].report is not None and states[1].report is not None
    losses = [each.report.updates.report["loss"] for each in states if each.report is not None]
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-12)


def test_bfloat16_folds_close_to_stored_gradients(federation: Federation, monkeypatch: pytest.MonkeyPatch) -> None:
    states = [
        trained(federation, monkeypatch, fedavg(Participation(), LOCAL), "perceptron", n, "bf16") for n in (1, 99)
    ]
    # The products of folded steps are in float32: no gradient is rounded to 8 bits.
    assert 0 < differ(states[0].model, states[1].model) < 0.02


def folded(module: nn.Module, local: Local = LOCAL) -> set[str]:
    stacks = {name: each.unsqueeze(0) for name, each in module.named_parameters() if each.requires_grad}
    return set(folding.FoldedLayers(module).chosen(local, stacks))


def test_layers_that_are_read_elsewhere_or_called_twice_do_not_fold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folding, "LEAST_VALUES", 1)
    assert folded(Tied()) == set()
    layer, tied, hooked = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4)
    tied.bias = hooked.bias
    assert folded(nn.Sequential(layer, nn.ReLU(), layer, nn.Linear(4, 3))) == {"3"}
    assert folded(nn.Sequential(tied, nn.Tanh(), hooked, nn.Linear(4, 3))) == {"3"}
    free = nn.Linear(4, 4)
    assert folded(nn.Sequential(free, nn.Linear(4, 3))) == {"0", "1"}
    free.weight.register_hook(lambda gradient: gradient * 0.1)
    assert folded(nn.Sequential(free, nn.Linear(4, 3))) == {"1"}
    assert folded(nn.Sequential(nn.Linear(4, 4), Own(), nn.Linear(4, 3))) == set()
    assert folded(perceptron()) == {"0", "3", "4"}
    frozen = perceptron()
    frozen.get_submodule("3").requires_grad_(False)
    assert folded(frozen) == {"0", "4"}


def test_small_layers_and_steps_that_need_the_whole_gradient_do_not_fold(monkeypatch: pytest.MonkeyPatch) -> None:
    assert folded(perceptron()) == set()
    monkeypatch.setattr(folding, "LEAST_VALUES", 1)
    assert folded(perceptron(), replace(LOCAL, clip=0.1)) == set()
    assert folded(perceptron(), replace(LOCAL, optimizer="adam")) == set()
    assert folded(perceptron(), moon(Participation(), LOCAL).local) == set()


def test_a_model_with_a_large_layer_folds_by_itself() -> None:
    module = nn.Sequential(nn.Linear(4, 256), nn.ReLU(), nn.Linear(256, 256), nn.Linear(256, 3))
    assert folded(module) == {"2"}
