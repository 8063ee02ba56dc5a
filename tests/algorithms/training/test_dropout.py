"""Dropout layers and their keyed masks: which layers become keyed ones, and which are refused."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from algorithms import Compute, InputError, Layout, Local, Participation, Resident, Sharing, fedavg, trainer
from raysim.fleet.inline import InlineFleet
from tests.kit.federation import clients, perceptron
from tests.kit.rounds import simulate

Federation = Callable[..., InlineFleet]


class DropsInTraining(nn.Module):
    """A model that calls its dropout layer in training alone."""

    def __init__(self, share: float) -> None:
        super().__init__()
        self.first, _, self.last = perceptron().double()
        self.drop = nn.Dropout(share)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x).relu()
        return self.last(self.drop(x) if self.training else x)


def residents(module: nn.Module) -> Resident:
    return Resident(module, Sharing().divide(Layout.of(module)), torch.zeros(4))


def test_a_layer_that_is_called_in_training_alone_drops(federation: Federation) -> None:
    found = {}
    for execution in ("sequential", "vectorised"):
        for share in (0.0, 0.5):
            compute = Compute(execution, "fp64")  # type: ignore[arg-type]
            algorithm = fedavg(Participation(), Local(lr=0.05, batch_size=4)).computed(compute)
            fleet = federation(clients((7, 9)), DropsInTraining(share), algorithm.sharing, 2, compute)
            found[execution, share] = simulate(algorithm, fleet, DropsInTraining(share), 2).model.floats
    for execution in ("sequential", "vectorised"):
        assert np.abs(found[execution, 0.5] - found[execution, 0.0]).max() > 1e-3
    np.testing.assert_allclose(found["vectorised", 0.5], found["sequential", 0.5], rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("tracks", [False, True])
def test_a_look_at_the_layers_leaves_batch_norm_as_it_was(tracks: bool) -> None:
    module = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6, track_running_stats=tracks), nn.Dropout(0.5))
    resident = residents(module)
    before = {name: value.clone() for name, value in resident.module.state_dict().items()}
    made: Any = trainer(resident, Compute("sequential"))
    assert list(made._masks.layers) == ["2"] and resident.module.training
    for name, value in resident.module.state_dict().items():
        assert torch.equal(value, before[name])


class Noisy(nn.Dropout):
    """A user's dropout that does something else."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.p


class Plain(nn.Dropout):
    """A user's dropout of another name."""


def test_a_dropout_layer_with_a_forward_of_its_own_is_refused() -> None:
    with pytest.raises(InputError, match=r"model layer 1 = Noisy: must be Dropout, .* derive the layer from"):
        trainer(residents(nn.Sequential(nn.Linear(4, 3), Noisy(0.5))), Compute("sequential"))
    made: Any = trainer(residents(nn.Sequential(nn.Linear(4, 3), Plain(0.5))), Compute("sequential"))
    assert list(made._masks.layers) == ["1"]


class Keywords(nn.Module):
    """A model that calls its layers by keyword, or not."""

    def __init__(self, by_keyword: bool) -> None:
        super().__init__()
        self.first, self.norm, _, self.last = perceptron(norm=True).double()
        self.drop, self.by_keyword = nn.Dropout(0.3), by_keyword

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in (self.first, self.norm, self.drop, self.last):
            x = layer(input=x) if self.by_keyword else layer(x)
        return x


def test_layers_may_be_called_by_keyword(federation: Federation) -> None:
    compute, found = Compute("sequential", "fp64"), []
    algorithm = fedavg(Participation(), Local(lr=0.05, batch_size=4)).computed(compute)
    for by_keyword in (False, True):
        fleet = federation(clients((7, 9)), Keywords(by_keyword), algorithm.sharing, 2, compute)
        found.append(simulate(algorithm, fleet, Keywords(by_keyword), 2).model.floats)
    np.testing.assert_array_equal(*found)
