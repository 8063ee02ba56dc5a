"""Importance sampling: scores by hand, RADFedi against its Algorithm 2, chances that make sense."""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from itertools import pairwise
from typing import Literal

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from algorithms import (
    Compute,
    Importance,
    InputError,
    Local,
    Mix,
    Participation,
    Rounds,
    begin,
    fedasync,
    fedavg,
    generator,
    next_round,
    phases,
    radfed,
    radfedi,
)
from algorithms.core.keys import Purpose
from algorithms.parts.option import Draft
from algorithms.parts.schedule import draw_weighted
from raysim.fleet.inline import InlineFleet
from tests.kit.federation import Samples, clients, perceptron
from tests.kit.reference import DATA, FP64, Values, agree, drawn, engine, mean, module, train
from tests.kit.rounds import SIZES, run, same, simulate

Federation = Callable[..., InlineFleet]
HALF = Participation(fraction=0.5)
LOCAL, EPOCHS = Local(lr=0.1, batch_size=4, epochs=2), 2


def square(model: nn.Module, data: Samples, rows: np.ndarray) -> float:
    """|grad F_b|^2 of one batch, normalised by the running statistics."""
    x, y = data[0].double()[rows], data[1][rows]
    gradients = torch.autograd.grad(cross_entropy(model.eval()(x), y), list(model.parameters()))
    model.train()
    return float(sum(g.square().sum() for g in gradients))


def near(received: Values, rho: float, lr: float) -> Callable[[nn.Module], None]:
    @torch.no_grad()
    def step(model: nn.Module) -> None:
        for name, p in model.named_parameters():
            p.sub_(lr * (p.grad + rho * (p - received[name])))

    return step


@pytest.mark.parametrize("per", ["batches", "samples"])
def test_radfedi_matches_algorithm_2(federation: Federation, per: Literal["batches", "samples"]) -> None:
    rho, alpha, gamma, m = 0.3, 0.6, 0.7, 3
    algorithm = radfedi(HALF, LOCAL, Mix(alpha), aggregate_every=2, gamma=gamma, per=per, proximal=rho)
    state, fleet = engine(federation, algorithm, rounds=4)

    def score(model: nn.Module, client: int, batches: list[np.ndarray]) -> float:
        one_pass = len(batches) // EPOCHS
        rows = batches[-one_pass:] if per == "batches" else [np.array([i]) for i in range(len(DATA[client][1]))]
        return float(np.mean([square(model, DATA[client], each) for each in rows]))

    w = module()
    p = np.array([score(w, client, drawn(LOCAL, DATA[client], 0, client)) for client in range(6)])
    number = 0
    for _ in range(2):
        models = [deepcopy(w) for _ in range(m)]
        for s in range(2):
            number += 1
            rng = generator(0, Purpose.COHORT, number)
            cohort = np.sort(draw_weighted(p, m, rng))
            order = generator(0, Purpose.DEAL, number).permutation(m) if s else range(m)
            models = [models[i] for i in order]
            for model, client in zip(models, cohort, strict=True):
                batches = drawn(LOCAL, DATA[client], number, int(client))
                received = {name: value.clone() for name, value in model.state_dict().items()}
                train(model, DATA[client], batches, near(received, rho, LOCAL.lr))
                p[client] = (1 - gamma) * p[client] + gamma * score(model, int(client), batches)
        aggregated = mean(models, [1.0] * m)
        old = w.state_dict()
        w.load_state_dict(
            {
                name: (1 - alpha) * old[name] + alpha * value if value.is_floating_point() else value
                for name, value in aggregated.items()
            }
        )
    agree(state, fleet, w.state_dict())
    np.testing.assert_allclose(state.of("importance")["p"], p, rtol=1e-9)


@pytest.mark.parametrize("per", ["batches", "samples"])
def test_scores_are_the_same_stacked(federation: Federation, per: Literal["batches", "samples"]) -> None:
    found = []
    for execution in ("sequential", "vectorised", "fused"):
        compute = Compute(execution, "fp64")  # type: ignore[arg-type]
        algorithm = radfedi(HALF, replace(LOCAL, compute=compute), aggregate_every=2, per=per)
        model = perceptron().double()
        if execution == "fused":  # for stacks of linear layers without norm
            model = nn.Sequential(*model)
        fleet = federation(DATA, model, algorithm.sharing, compute=compute, lanes=2)
        found.append(simulate(algorithm, fleet, perceptron().double(), 3).of("importance")["p"])
    np.testing.assert_allclose(found[1], found[0], rtol=1e-9)
    np.testing.assert_allclose(found[2], found[0], rtol=1e-9)


def test_chances_begin_as_they_are_told(federation: Federation) -> None:
    for start in ("score", "equal"):
        algorithm = radfedi(HALF, LOCAL, aggregate_every=2, start=start)  # type: ignore[arg-type]
        fleet = federation(clients(SIZES), perceptron(True))
        state = next_round(begin(perceptron(True), fleet, 0), algorithm, fleet)
        assert state.report is not None
        updated = set(state.report.updates.clients.tolist())
        others = [k for k in range(6) if k not in updated and SIZES[k] > 1]
        assert others and (set(state.of("importance")["p"][others]) == {1.0}) == (start == "equal")
        assert state.report.exchanges == (2 if start == "score" else 1)
        whole = fleet.layouts.shared.nbytes
        assert state.report.bytes_down == 3 * whole + (6 * whole if start == "score" else 0)
        # Nobody draws a client that has nothing to train on.
        assert 4 not in updated


def test_the_first_chances_do_not_depend_on_arrivals(federation: Federation) -> None:
    importance = Importance()
    algorithm = phases(fedasync(HALF, LOCAL), (1, fedavg(replace(HALF, by=importance), LOCAL)))
    fleet = federation(clients(SIZES), perceptron(True), algorithm.sharing)
    first = begin(perceptron(True), fleet, 0)
    after = next_round(first, algorithm, fleet)
    assert after.dispatches > 0
    found = [
        importance.attend(Draft.of(replace(state, model=first.model), algorithm.phase(1), fleet)).weights
        for state in (first, after)
    ]
    assert found[0].tolist() == found[1].tolist()


def test_a_score_that_is_no_number_changes_nothing(federation: Federation) -> None:
    local = replace(LOCAL, lr=1e30, nonfinite="leave-out")
    algorithm = radfedi(HALF, local, aggregate_every=2, start="equal")
    fleet = federation(DATA, perceptron())
    state = next_round(begin(perceptron(), fleet, 0), algorithm, fleet)
    assert np.isfinite(state.of("importance")["p"]).all()
    left_out = state.report.updates.clients[~state.report.updates.finite]
    assert len(left_out) and set(state.of("importance")["p"][left_out]) == {1.0}


def test_a_client_that_cannot_train_is_drawn_less_and_less(federation: Federation) -> None:
    algorithm = radfedi(Participation(cohort=2), LOCAL, aggregate_every=1, gamma=0.5, start="equal")
    fleet = federation(clients((1, 9, 8)), perceptron(True))
    state, chances = begin(perceptron(True), fleet, 0), []
    for _ in range(12):
        state = next_round(state, algorithm, fleet)
        chances.append(float(state.of("importance")["p"][0]))
    assert chances[-1] < 0.2 and all(a in (b, 2 * b) for a, b in pairwise(chances))


def test_without_mixing_a_chance_is_the_last_score(federation: Federation) -> None:
    algorithm = radfedi(Participation(), LOCAL, aggregate_every=1, gamma=1.0)
    fleet = federation(DATA, perceptron(), compute=FP64)
    state = next_round(begin(perceptron().double(), fleet, 0), algorithm, fleet)
    assert state.report is not None
    assert state.of("importance")["p"].tolist() == state.report.updates.report["score"].tolist()


def test_the_default_gamma_is_the_paper_s() -> None:
    by = radfedi(Participation(), LOCAL).schedule.participation.by
    assert isinstance(by, Importance) and by.gamma == Importance().gamma == 0.9  # Table II; its grid is 0.6 to 0.95


def test_drawing_everybody_is_radfed(federation: Federation) -> None:
    a = run(federation, radfedi(Participation(), LOCAL, aggregate_every=2), DATA, rounds=3)
    assert same(a.model, run(federation, radfed(Participation(), LOCAL, aggregate_every=2), DATA, rounds=3).model)


def test_importance_serves_any_algorithm(federation: Federation) -> None:
    by = Participation(fraction=0.5, by=Importance(0.5))
    a, plain = (run(federation, fedavg(each, LOCAL), DATA, rounds=2) for each in (by, HALF))
    assert len(a.of("importance")["p"]) and not same(a.model, plain.model)
    assert fedavg(by, LOCAL).schedule == Rounds(by)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Importance(gamma=0.0), r"algorithm.gamma = 0.0: must be in \(0, 1\]"),
        (lambda: Importance(per="layers"), "algorithm.per = 'layers'"),  # type: ignore[arg-type]
        (lambda: Importance(start="zero"), "algorithm.start = 'zero'"),  # type: ignore[arg-type]
        (lambda: radfedi(Participation(by="size"), LOCAL), "algorithm.sampling = 'size': must be left out for radfedi"),
    ],
)
def test_what_makes_no_sense_is_refused(make: Callable[[], object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        make()
