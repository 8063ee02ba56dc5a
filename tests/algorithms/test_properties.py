"""What holds for every algorithm on every kind of model."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from algorithms import (
    Adagrad,
    Adam,
    InputError,
    Layout,
    Local,
    Mix,
    Participation,
    Server,
    Yogi,
    fedavg,
)
from algorithms.core.entries import Kind
from algorithms.names import ALGORITHMS
from tests.kit.federation import NEEDS_BATCH_NORM, named, perceptron
from tests.kit.models import MODELS, Federation, simulate
from tests.kit.rounds import same

LOCAL = Local(lr=0.05, batch_size=4)
SOME = Participation(fraction=0.7)


ALL = [(name, model) for name in ALGORITHMS for model in MODELS if model != "mlp" or name not in NEEDS_BATCH_NORM]
RESIDUAL = "residual net with batch norm"
"""It has all layers of the others; with the convolutional network `test_uplink.py` runs every algorithm."""


def slow_but(*models: str) -> list[Any]:
    """Return all cases, those of other models marked slow."""
    return [pytest.param(*case, marks=[pytest.mark.slow] * (case[1] not in models)) for case in ALL]


@pytest.mark.parametrize("name", sorted(NEEDS_BATCH_NORM))
def test_the_others_refuse_the_model(name: str) -> None:
    with pytest.raises(InputError, match="the model has no batch-norm layer that trains"):
        named(name, SOME, LOCAL).divide(Layout.of(perceptron()))


@pytest.mark.parametrize("model", MODELS)
def test_rounds_on_every_model_have_the_same_bytes_again(model: str, federation: Federation) -> None:
    """The matrix has it of every algorithm."""
    states = [simulate(federation, fedavg(SOME, LOCAL), model, "sequential", "fp64", 3)[0] for _ in range(2)]
    assert same(states[0].model, states[1].model) and same(states[0].average, states[1].average)


@pytest.mark.parametrize(("name", "model"), slow_but(RESIDUAL))
def test_every_algorithm_on_every_model(name: str, model: str, federation: Federation) -> None:
    algorithm = named(name, SOME, LOCAL)
    first, fleet = simulate(federation, algorithm, model, "sequential", "fp64", 2)
    stacked, _ = simulate(federation, algorithm, model, "vectorised", "fp64", 2)
    for one, other in ((first.model, stacked.model), (first.average, stacked.average)):
        np.testing.assert_allclose(other.floats, one.floats, rtol=1e-9, atol=1e-9)
        assert np.array_equal(one.integers, other.integers)
    assert np.isfinite(first.model.floats).all() and np.isfinite(first.average.floats).all()
    layouts = fleet.layouts
    for entry in layouts.whole.entries:
        values = {**layouts.shared.unpack(first.model), **layouts.personal.unpack(first.average)}[entry.name]
        if entry.kind is Kind.STATISTIC:
            # A counter is a whole number of steps, an average is not: client updates take from one step to 16 together.
            counts = entry.name.endswith("num_batches_tracked")
            assert not counts or (values.dtype == np.int64 and values in range(100))
            assert not entry.name.endswith("running_var") or (values > 0).all()


@pytest.mark.parametrize(("name", "model"), slow_but("cnn with batch norm"))
def test_one_update_each_in_float32(name: str, model: str, federation: Federation) -> None:
    algorithm = named(name, SOME, LOCAL)
    states = [simulate(federation, algorithm, model, way, "fp32", 1)[0] for way in ("sequential", "vectorised")]
    np.testing.assert_allclose(states[1].model.floats, states[0].model.floats, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("server", [Mix(0.3), Adam(lr=1.0), Yogi(lr=1.0), Adagrad(lr=1.0)])
def test_variances_stay_positive_under_every_server_rule(server: Server, federation: Federation) -> None:
    algorithm = fedavg(SOME, replace(LOCAL, lr=0.5), server)
    state, fleet = simulate(federation, algorithm, RESIDUAL, "sequential", "fp32", 6)
    for name, values in fleet.layouts.shared.unpack(state.model).items():
        assert not name.endswith("running_var") or (values > 0).all(), name
