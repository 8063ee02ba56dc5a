"""What holds for every algorithm on every kind of model."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch
from torch import nn

from algorithms import (
    Adagrad,
    Adam,
    Algorithm,
    Compute,
    InputError,
    Layout,
    Local,
    Mix,
    Sample,
    Server,
    State,
    Yogi,
    begin,
    fedavg,
    next_round,
)
from algorithms.core.entries import Kind
from algorithms.names import ALGORITHMS
from raysim.fleet.inline import InlineFleet
from tests.algorithms.conftest import NEEDS_BATCH_NORM, clients, named, perceptron
from tests.algorithms.rounds.test_round import same

Federation = Callable[..., InlineFleet]
SIZES = (7, 4, 1, 9, 0, 8)
LOCAL = Local(lr=0.05, batch_size=4)
SAMPLE = Sample(fraction=0.7)


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


CASES = [(name, model) for name in ALGORITHMS for model in MODELS if model != "mlp" or name not in NEEDS_BATCH_NORM]


@pytest.mark.parametrize("name", sorted(NEEDS_BATCH_NORM))
def test_the_others_refuse_the_model(name: str) -> None:
    with pytest.raises(InputError, match="the model has no batch-norm layer that trains"):
        named(name, SAMPLE, LOCAL).divide(Layout.of(perceptron()))


@pytest.mark.parametrize(("name", "model"), CASES)
def test_every_algorithm_on_every_model(name: str, model: str, federation: Federation) -> None:
    algorithm = named(name, SAMPLE, LOCAL)
    first, fleet = simulate(federation, algorithm, model, "sequential", "fp64", 3)
    again, _ = simulate(federation, algorithm, model, "sequential", "fp64", 3)
    assert same(first.model, again.model) and same(first.average, again.average)
    stacked, _ = simulate(federation, algorithm, model, "vectorised", "fp64", 3)
    for one, other in ((first.model, stacked.model), (first.average, stacked.average)):
        np.testing.assert_allclose(other.floats, one.floats, rtol=1e-9, atol=1e-9)
        assert np.array_equal(one.integers, other.integers)
    assert np.isfinite(first.model.floats).all() and np.isfinite(first.average.floats).all()
    layouts = fleet.layouts
    for entry in layouts.whole.entries:
        values = {**layouts.shared.unpack(first.model), **layouts.personal.unpack(first.average)}[entry.name]
        if entry.kind is Kind.STATISTIC:
            # A counter is a whole number of steps, an average is not: client updates take from one step to 24 together.
            counts = entry.name.endswith("num_batches_tracked")
            assert not counts or (values.dtype == np.int64 and values in range(100))
            assert not entry.name.endswith("running_var") or (values > 0).all()


@pytest.mark.parametrize(("name", "model"), CASES)
def test_one_update_each_in_float32(name: str, model: str, federation: Federation) -> None:
    algorithm = named(name, SAMPLE, LOCAL)
    states = [simulate(federation, algorithm, model, way, "fp32", 1)[0] for way in ("sequential", "vectorised")]
    np.testing.assert_allclose(states[1].model.floats, states[0].model.floats, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("server", [Mix(0.3), Adam(lr=1.0), Yogi(lr=1.0), Adagrad(lr=1.0)])
def test_variances_stay_positive_under_every_server_rule(server: Server, federation: Federation) -> None:
    algorithm = fedavg(SAMPLE, replace(LOCAL, lr=0.5), server)
    state, fleet = simulate(federation, algorithm, "residual net with batch norm", "sequential", "fp32", 6)
    for name, values in fleet.layouts.shared.unpack(state.model).items():
        assert not name.endswith("running_var") or (values > 0).all(), name
