"""Adaptive servers and RADFed's variants: exact numbers, plain references in float64, identities."""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace

import numpy as np
import pytest
import torch

from algorithms import (
    Adagrad,
    Adam,
    Adaptive,
    Algorithm,
    Compute,
    Equal,
    InputError,
    Layout,
    Local,
    Mix,
    Packed,
    Participation,
    State,
    Yogi,
    fedadagrad,
    fedadam,
    fedavg,
    fedyogi,
    radfed,
    radfeda,
    radfedm,
    radfedp,
    silobn,
    singleset,
)
from algorithms.fedprox import Proximal
from raysim.fleet.inline import InlineFleet
from tests.kit.federation import Samples, clients, perceptron
from tests.kit.reference import update
from tests.kit.rounds import SIZES, run, same, simulate

Federation = Callable[..., InlineFleet]
HALF = Participation(fraction=0.5)
LOCAL = Local(lr=0.1, batch_size=4)
FP64 = Compute("sequential", precision="fp64")
SECOND = {
    Adam: lambda v, square: 0.99 * v + 0.01 * square,
    Yogi: lambda v, square: v - 0.01 * square * np.sign(v - square),
    Adagrad: lambda v, square: v + square,
}


@pytest.mark.parametrize("rule", [Adam, Yogi, Adagrad])
def test_two_aggregates_by_hand(rule: type[Adaptive]) -> None:
    layout = Layout.of(torch.nn.Linear(1, 1, bias=False))
    server, memory = rule(lr=0.5, tau=0.1, initial=0.04), {}
    model = layout.pack({"weight": torch.tensor([[1.0]])})
    w, m, v = 1.0, 0.0, 0.04
    for mean in (3.0, 2.0):
        given = layout.pack({"weight": torch.tensor([[mean]])})
        before = {name: value.copy() for name, value in memory.items()}
        model, after = server(model, given, 7.0, memory, layout)
        assert all(np.array_equal(memory[name], before[name]) for name in memory)
        delta = mean - w
        m, v = 0.9 * m + 0.1 * delta, SECOND[rule](v, delta**2)
        w += 0.5 * m / (np.sqrt(v) + 0.1)
        assert model.floats[0] == pytest.approx(w, rel=1e-6)
        memory = after


def test_statistics_and_counters_take_the_mean_and_the_largest() -> None:
    module = perceptron(True)
    layout = Layout.of(module)
    model = layout.pack(module.state_dict())
    mean = Packed(model.floats + 1, model.integers + 5)
    found, expected = layout.unpack(Adam()(model, mean, 1.0, {}, layout)[0]), layout.unpack(mean)
    for name, value in found.items():
        is_statistic = name.startswith("1.running") or name.endswith("tracked")
        assert np.array_equal(value, expected[name]) == is_statistic, name


Values = dict[str, torch.Tensor]


def aggregated(models: list[torch.nn.Module]) -> Values:
    """The equal mean of floating entries, the largest of counters."""
    states = [model.state_dict() for model in models]
    return {
        name: sum(s[name] for s in states) / len(states) if value.is_floating_point() else max(s[name] for s in states)
        for name, value in states[0].items()
    }


class Reference:
    """RADFed's Algorithm 2 without importance sampling; with S = 1 its server alone, which is FedOpt's."""

    def __init__(self, server: Adaptive | Mix | None, aggregate_every: int, local: Local) -> None:
        self.server, self.aggregate_every, self.local = server, aggregate_every, local
        self.m: dict[str, np.ndarray] = {}
        self.v: dict[str, np.ndarray] = {}

    def run(self, data: list[Samples], rounds: int) -> torch.nn.Module:
        module = perceptron(True).double()
        models: list[tuple[torch.nn.Module, bool]] = []
        for number in range(1, rounds + 1):
            cohort = HALF.draw(np.arange(len(data)), 0, number)
            if models:
                order = radfed(HALF, LOCAL, aggregate_every=9).schedule.deal(len(models), 0, number)
                models = [models[i] for i in order]
            else:
                models = [(deepcopy(module), False) for _ in cohort]
            models = [
                (model, update(model, data[client], number, int(client), self.local) or trained)
                for (model, trained), client in zip(models, cohort, strict=True)
            ]
            if number % self.aggregate_every == 0 or number == rounds:
                counted = [model for model, trained in models if trained]
                if counted:
                    module.load_state_dict(self.next(module, aggregated(counted)))
                models = []
        return module

    def next(self, module: torch.nn.Module, mean: Values) -> Values:
        if self.server is None:
            return mean
        values = dict(module.state_dict())
        if isinstance(self.server, Mix):
            alpha = self.server.alpha
            return {n: (1 - alpha) * values[n] + alpha * m if m.is_floating_point() else m for n, m in mean.items()}
        for name, _ in module.named_parameters():
            delta = (mean[name] - values[name]).numpy()
            self.m[name] = 0.9 * self.m.get(name, 0.0) + 0.1 * delta
            self.v[name] = SECOND[type(self.server)](self.v.get(name, self.server.tau**2), delta**2)
            step = self.server.lr * self.m[name] / (np.sqrt(self.v[name]) + self.server.tau)
            mean[name] = values[name] + torch.from_numpy(step)
        return mean


PROXIMAL = replace(LOCAL, method=Proximal(0.3))
CASES: dict[str, tuple[Algorithm, Reference]] = {
    "fedadam": (fedadam(HALF, LOCAL, Adam(lr=0.05)), Reference(Adam(lr=0.05), 1, LOCAL)),
    "fedyogi": (fedyogi(HALF, LOCAL, Yogi(lr=0.05)), Reference(Yogi(lr=0.05), 1, LOCAL)),
    "fedadagrad": (fedadagrad(HALF, LOCAL, Adagrad(tau=0.01)), Reference(Adagrad(tau=0.01), 1, LOCAL)),
    "radfed": (radfed(HALF, LOCAL, aggregate_every=3), Reference(None, 3, LOCAL)),
    "radfedp": (radfedp(HALF, LOCAL, aggregate_every=3, proximal=0.3), Reference(None, 3, PROXIMAL)),
    "radfedm": (radfedm(HALF, LOCAL, Mix(0.6), aggregate_every=3), Reference(Mix(0.6), 3, LOCAL)),
    "radfeda": (radfeda(HALF, LOCAL, Yogi(lr=0.05), aggregate_every=3), Reference(Yogi(lr=0.05), 3, LOCAL)),
    "radfedp with adam": (
        radfedp(HALF, LOCAL, Adam(lr=0.05), aggregate_every=2, proximal=0.3),
        Reference(Adam(lr=0.05), 2, PROXIMAL),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_it_matches_its_pseudo_code_in_float64(name: str, federation: Federation) -> None:
    algorithm, reference = CASES[name]
    data = clients(SIZES)
    module = perceptron(True).double()
    fleet = federation(data, module, algorithm.sharing, compute=FP64)
    state: State = simulate(algorithm, fleet, module, rounds=7)
    expected = reference.run(data, rounds=7).state_dict()
    for entry, value in fleet.layouts.shared.unpack(state.model).items():
        np.testing.assert_allclose(value, expected[entry].numpy(), rtol=1e-9, atol=1e-11, err_msg=entry)


def test_radfed_s_variants_are_radfed_where_they_do_nothing(federation: Federation) -> None:
    data = clients(SIZES)
    plain = run(federation, radfed(HALF, LOCAL, aggregate_every=3), data)
    assert same(plain.model, run(federation, radfedp(HALF, LOCAL, aggregate_every=3, proximal=0.0), data).model)
    assert same(plain.model, run(federation, radfedm(HALF, LOCAL, Mix(1.0), aggregate_every=3), data).model)
    adaptive = replace(fedavg(HALF, LOCAL, Adam()), weighting=Equal())
    aggregating = run(federation, radfeda(HALF, LOCAL, Adam(), aggregate_every=1), data)
    assert same(aggregating.model, run(federation, adaptive, data).model)


def test_silobn_keeps_the_statistics_alone(federation: Federation) -> None:
    algorithm = silobn(HALF, LOCAL)
    fleet = federation(clients(SIZES), perceptron(True), algorithm.sharing)
    assert {entry.name for entry in fleet.layouts.personal.entries} == {
        "1.running_mean",
        "1.running_var",
        "1.num_batches_tracked",
    }


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: fedadam(HALF, LOCAL, Yogi()), "server.rule = Yogi.* must be 'adam' for fedadam"),
        (lambda: radfeda(HALF, LOCAL, Mix(0.5)), "server.rule = Mix.* must be 'adam', 'yogi' or 'adagrad' for radfeda"),
        (lambda: radfedm(HALF, LOCAL, Yogi()), "server.rule = Yogi.* must be 'mix' for radfedm"),
        (lambda: singleset(HALF, LOCAL, Mix(0.5)), "server.rule = Mix.* must be 'assign' if nothing travels"),
        (lambda: Adam(lr=0.0), "server.lr = 0.0: must be a number > 0"),
        (lambda: Adam(beta1=1.0), r"server.beta1 = 1.0: must be in \[0, 1\)"),
        (lambda: Yogi(beta2=-0.1), r"server.beta2 = -0.1: must be in \[0, 1\)"),
        (lambda: Adagrad(tau=float("nan")), "server.tau = nan"),
        (lambda: Adagrad(initial=-1.0), "server.initial = -1.0"),
    ],
)
def test_parts_that_make_no_sense_are_refused(make: Callable[[], object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        make()


def test_radfed_s_variants_take_a_rule_of_one_s_own() -> None:
    class Mine:
        def __call__(self, *given: object) -> object: ...

    mine = Mine()
    for variant in (radfedm, radfeda):
        assert variant(HALF, LOCAL, mine).server is mine  # type: ignore[arg-type]
