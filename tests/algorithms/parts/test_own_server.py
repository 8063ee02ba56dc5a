"""A server rule of one's own: norms of the changes in every execution, and entries by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch

from algorithms import (
    Algorithm,
    Assign,
    Compute,
    InputError,
    Layout,
    Local,
    Memory,
    Packed,
    Participation,
    Purpose,
    Stretched,
    begin,
    fedavg,
    fedbuff,
    generator,
    next_round,
    radfed,
)
from algorithms.core.report import NO_ROWS, UpdateRows
from algorithms.parts.server import next_model
from raysim.fleet.inline import InlineFleet
from tests.kit.federation import perceptron
from tests.kit.reference import DATA, mean, sgd, train
from tests.kit.rounds import simulate

Federation = Callable[..., InlineFleet]
LOCAL = Local(lr=0.3, batch_size=4, epochs=2)
ROUNDS = 3


@dataclass(frozen=True)
class FedExP:
    """Jhunjhunwala et al., 2023: the step to the mean, extrapolated by the norms of the clients' changes."""

    eps: float = 1e-3

    needs = ("change",)

    def __call__(
        self, model: Packed, mean: Packed, total: float, memory: Memory, layout: Layout, updates: UpdateRows
    ) -> tuple[Packed, Memory]:
        step = mean.floats - model.floats
        rate = max(1.0, updates.weights @ updates.column("change") / total / (2 * (step @ step + self.eps)))
        return Packed(model.floats + rate * step, mean.integers), {"rate": np.array(rate)}


def by_hand(eps: float) -> tuple[dict[str, torch.Tensor], list[float]]:
    """FedExP in a loop of float64; return the model and the rates."""
    x, rates = perceptron().double(), []
    sizes = np.array([len(y) for _, y in DATA])
    for number in range(1, ROUNDS + 1):
        then = {name: p.detach().clone() for name, p in x.named_parameters()}
        models, squares = [], []
        for client, data in enumerate(DATA):
            model = perceptron().double()
            model.load_state_dict(then)
            batches = list(LOCAL.passes(len(data[1]), generator(0, Purpose.BATCHES, number, client)))
            train(model, data, batches, sgd(LOCAL.lr))
            models.append(model)
            squares.append(sum(float((p.detach() - then[n]).square().sum()) for n, p in model.named_parameters()))
        whole = mean(models, sizes.tolist())
        norm = sum(float((whole[name] - then[name]).square().sum()) for name in then)
        rates.append(max(1.0, float(sizes @ squares / sizes.sum()) / (2 * (norm + eps))))
        x.load_state_dict({name: then[name] + rates[-1] * (whole[name] - then[name]) for name in then})
    return x.state_dict(), rates


@pytest.mark.parametrize("execution", ["sequential", "vectorised", "fused"])
def test_fedexp_of_one_s_own_equals_a_loop_in_float64(execution: Any, federation: Federation) -> None:
    compute, eps = Compute(execution, precision="fp64"), 1e-6
    algorithm = replace(fedavg(Participation(), replace(LOCAL, compute=compute)), server=FedExP(eps))
    module = perceptron().double()
    fleet = federation(DATA, module, algorithm.sharing, block=3, lanes=3, compute=compute)
    state = simulate(algorithm, fleet, module, ROUNDS)
    values, rates = by_hand(eps)
    for name, value in fleet.layouts.shared.unpack(state.model).items():
        np.testing.assert_allclose(value, values[name].numpy(), rtol=0, atol=1e-9)
    assert state.of("server")["rate"] == pytest.approx(rates[-1], rel=1e-9) and max(rates) > 1.05


@dataclass(frozen=True)
class StillLastLayer:
    """The mean, but the last layer stays."""

    def __call__(
        self, model: Packed, mean: Packed, total: float, memory: Memory, layout: Layout
    ) -> tuple[Packed, Memory]:
        following = mean.copy()
        old, new = layout.unpack(model), layout.unpack(following)
        new["2.weight"][:], new["2.bias"][:] = old["2.weight"], old["2.bias"]
        return following, memory


def test_a_rule_reads_and_writes_entries_by_name(federation: Federation) -> None:
    plain, start = fedavg(Participation(), LOCAL), perceptron().state_dict()

    def entries(algorithm: Algorithm) -> dict[str, Any]:
        fleet = federation(DATA, perceptron(), algorithm.sharing)
        return fleet.layouts.shared.unpack(simulate(algorithm, fleet, perceptron(), 1).model)

    moved, still = entries(plain), entries(replace(plain, server=StillLastLayer()))
    for name, value in start.items():
        np.testing.assert_array_equal(still[name], value.numpy() if name.startswith("2.") else moved[name])
    assert np.abs(moved["2.weight"] - start["2.weight"].numpy()).max() > 0


def test_a_rule_that_is_fitted_to_nothing_is_refused(federation: Federation) -> None:
    class Unfit(Assign):
        def fitted(self, census: object) -> None:
            return None

    algorithm = replace(fedavg(Participation(), LOCAL), server=Unfit())
    fleet = federation(DATA, perceptron(), algorithm.sharing)
    with pytest.raises(InputError, match="Unfit': must return a rule from its method `fitted`, and returns a NoneType"):
        simulate(algorithm, fleet, perceptron(), 1)


@dataclass(frozen=True)
class InPlace:
    """Momentum that changes what it gets."""

    def __call__(
        self, model: Packed, mean: Packed, total: float, memory: Memory, layout: Layout
    ) -> tuple[Packed, Memory]:
        w, v = model.floats, memory["v"]
        v *= 0.9
        v += mean.floats - w
        w += v
        return model, memory


def test_a_rule_that_steps_in_place_changes_no_earlier_model() -> None:
    """It may be the best model so far, which `evaluate.select` writes at the end."""
    layout = Layout.of(torch.nn.Linear(1, 1))
    before = Packed(np.zeros(layout.floats, np.float32), np.zeros(0, np.int64))
    mean, memory = Packed(np.ones(layout.floats, np.float32), before.integers), {"v": np.zeros(layout.floats)}
    model, kept = next_model(InPlace(), (before, mean, 1.0, memory, layout), 1, NO_ROWS)
    assert before.floats.tolist() == memory["v"].tolist() == [0.0] * layout.floats
    assert model.floats.tolist() == kept["v"].tolist() == [1.0] * layout.floats


@dataclass(frozen=True)
class Counts:
    """The mean; the memory counts the steps."""

    columns: tuple[str, ...] = ("step",)

    def __call__(
        self, model: Packed, mean: Packed, total: float, memory: Memory, layout: Layout
    ) -> tuple[Packed, Memory]:
        return mean, {"step": np.asarray(memory.get("step", 0) + 1), "several": np.zeros(2)}


def measured(algorithm: Algorithm, federation: Federation, rounds: int = ROUNDS) -> list[float | None]:
    fleet, found = federation(DATA, perceptron(), algorithm.sharing), []
    state = begin(perceptron(), fleet, 0, rounds)
    for number in range(1, rounds + 1):
        state = next_round(state, algorithm, fleet, last=number == rounds)
        found.append(state.report.measures.get("step") if state.report else None)
    return found


def test_numbers_that_a_rule_names_are_measures(federation: Federation) -> None:
    plain = fedavg(Participation(), LOCAL)
    assert measured(replace(plain, server=Counts()), federation) == [1, 2, 3]
    assert measured(replace(plain, server=Stretched(Double(), Counts())), federation) == [1, 2, 3]
    assert measured(replace(plain, server=Counts(())), federation) == [None, None, None]
    travelling = replace(radfed(Participation(), LOCAL, aggregate_every=2), server=Counts())
    assert measured(travelling, federation, 4) == [None, 1, None, 2]
    assert measured(replace(fedbuff(Participation(), LOCAL), server=Counts()), federation) == [None, None, None]


class Double:
    def stretch(self, updates: UpdateRows) -> float:
        return 2.0


@pytest.mark.parametrize("column", ["steps", "several"])
def test_a_rule_returns_the_numbers_that_it_names(column: str, federation: Federation) -> None:
    with pytest.raises(InputError, match=f"Counts': must return the number '{column}', which its `columns` names, in "):
        measured(replace(fedavg(Participation(), LOCAL), server=Counts((column,))), federation)


class Velocity:
    """Momentum as one writes it in PyTorch."""

    def __init__(self, beta: float = 0.9) -> None:
        self.beta, self.v = beta, 0.0

    def __call__(
        self, model: Packed, mean: Packed, total: float, memory: Memory, layout: Layout
    ) -> tuple[Packed, Memory]:
        self.v = self.beta * self.v + (mean.floats - model.floats)
        return Packed(model.floats + self.v, mean.integers), memory


def test_a_rule_that_keeps_something_on_itself_is_refused(federation: Federation) -> None:
    algorithm = replace(fedavg(Participation(), LOCAL), server=Velocity())
    fleet = federation(DATA, perceptron(), algorithm.sharing)
    with pytest.raises(
        InputError,
        match=r"Velocity': must keep nothing on itself, and sets 'v' \(.*return it in its "
        r"memory, or make it in `__init__` if it never changes",
    ):
        simulate(algorithm, fleet, perceptron(), 1)
