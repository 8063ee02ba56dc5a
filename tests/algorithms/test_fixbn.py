"""FixBN: its phases, its window, what it fixes, and momentum that outlasts a client update."""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from typing import Literal

import numpy as np
import pytest
import torch
from torch import nn

from algorithms import (
    Adagrad,
    Adam,
    Equal,
    InputError,
    Layout,
    Local,
    Momentum,
    Participation,
    Server,
    SteadyStatistics,
    Yogi,
    fedavg,
    fixbn,
    next_round,
)
from algorithms.core.state import begin
from raysim.fleet.inline import InlineFleet
from tests.kit.federation import clients, perceptron
from tests.kit.reference import DATA, FP64, Values, agree, drawn, engine, mean, module, train
from tests.kit.rounds import SIZES, run, same

Federation = Callable[..., InlineFleet]
HALF = Participation(fraction=0.5)
LOCAL = Local(lr=0.1, batch_size=4)
MOMENTUM = replace(LOCAL, lr=0.02, momentum=0.9)


def test_fixbn_is_fedavg_and_then_fedavg_with_frozen_statistics(federation: Federation) -> None:
    data, algorithm = clients(SIZES), fixbn(HALF, LOCAL, fix_after=0.5)
    first = replace(fedavg(HALF, LOCAL), weighting=Equal())
    second = replace(first, local=replace(LOCAL, statistics="frozen"))
    fleet = federation(data, perceptron(True), algorithm.sharing)
    state, statistics = begin(perceptron(True), fleet, 0), []
    for number in range(1, 6):
        state = next_round(state, first if number <= 2 else second, fleet)  # 2 = floor(5 / 2)
        statistics.append(fleet.layouts.shared.unpack(state.model)["1.running_var"].copy())
    found = run(federation, algorithm, data, rounds=5)
    assert same(found.model, state.model)
    assert not np.array_equal(statistics[0], statistics[1])
    assert all(np.array_equal(each, statistics[1]) for each in statistics[2:])


def test_fixbn_that_fixes_nothing_is_fedavg(federation: Federation) -> None:
    data, plain = clients(SIZES), replace(fedavg(HALF, LOCAL), weighting=Equal())
    never = run(federation, fixbn(HALF, LOCAL, fix_after=99), data, rounds=3)
    assert same(never.model, run(federation, plain, data, rounds=3).model)
    by_samples = run(federation, fixbn(HALF, LOCAL, fix_after=99, weighting="samples"), data, rounds=3)
    assert same(by_samples.model, run(federation, fedavg(HALF, LOCAL), data, rounds=3).model)


@pytest.mark.parametrize("maintained", ["none", "local", "global"])
@pytest.mark.parametrize("fixed", ["statistics", "affine", "both"])
def test_fixbn_matches_its_algorithm(
    federation: Federation,
    fixed: Literal["statistics", "affine", "both"],
    maintained: Literal["none", "local", "global"],
) -> None:
    algorithm = fixbn(HALF, MOMENTUM, fix_after=2, fixed=fixed, maintained_momentum=maintained)
    state, fleet = engine(federation, algorithm, rounds=4)
    model = module()
    zero: Values = {name: torch.zeros_like(p) for name, p in model.named_parameters()}
    common, own = dict(zero), [dict(zero) for _ in DATA]
    for number in range(1, 5):
        models, velocities = [], []
        cohort = [int(client) for client in HALF.draw(np.arange(6), 0, number)]
        for client in cohort:
            w = deepcopy(model).train()
            begun = {"none": zero, "local": own[client], "global": common}[maintained]
            u = {name: value.clone() for name, value in begun.items()}
            freezes = number > 2
            if freezes and fixed != "affine":
                w[1].eval()
            trained = [name for name in u if not (freezes and fixed != "statistics" and name.startswith("1."))]

            @torch.no_grad()
            def with_momentum(w: nn.Module, u: Values = u, trained: list[str] = trained) -> None:
                for name, p in w.named_parameters():
                    if name in trained:
                        u[name] = 0.9 * u[name] + p.grad
                        p.sub_(0.02 * u[name])

            # With frozen statistics a batch of one is as good as any.
            batches = drawn(MOMENTUM, DATA[client], number, client, least=1 if freezes and fixed != "affine" else 2)
            train(w, DATA[client], batches, with_momentum)
            models.append(w)
            velocities.append(u)
            own[client] = u
        model.load_state_dict(mean(models, [1.0] * len(models)))
        common = {name: sum(u[name] for u in velocities) / len(velocities) for name in zero}
    agree(state, fleet, model.state_dict())
    if maintained == "global":
        agree(state, fleet, {f"momentum/{name}": value for name, value in common.items()})
    whole = 8 * (4 * 6 + 6 + 6 * 3 + 3 + 4 * 6) + 8
    momentum = 8 * (4 * 6 + 6 + 6 * 3 + 3 + 2 * 6)
    assert state.report is not None
    assert state.report.bytes_up == 3 * (whole + (momentum if maintained == "global" else 0))


@pytest.mark.parametrize("server", [Adam(), Yogi(), Adagrad(), Momentum()])
@pytest.mark.parametrize("fixed", ["affine", "both"])
def test_an_adaptive_server_leaves_alone_what_is_fixed(
    federation: Federation, fixed: Literal["affine", "both"], server: Server
) -> None:
    algorithm, entries = fixbn(HALF, LOCAL, server, fix_after=2, fixed=fixed), []
    fleet = federation(DATA, module(), algorithm.sharing, compute=FP64)
    state = begin(module(), fleet, 0)
    for _ in range(4):
        state = next_round(state, algorithm, fleet)
        entries.append({name: value.copy() for name, value in fleet.layouts.shared.unpack(state.model).items()})
    kept = ("1.weight", "1.bias", *(("1.running_mean", "1.running_var") if fixed == "both" else ()))
    for name in (*kept, "3.weight"):
        assert not np.array_equal(entries[0][name], entries[1][name]), name
        assert np.allclose(entries[3][name], entries[1][name], rtol=1e-12, atol=0) == (name in kept), name


def test_maintained_momentum_needs_momentum() -> None:
    for make in (fedavg, fixbn):
        with pytest.raises(InputError, match=r"sharing.slots = 'momentum' .* set local.momentum = 0.9"):
            make(HALF, LOCAL, maintained_momentum="local")


def test_without_batch_norm_there_is_nothing_to_fix() -> None:
    for fixed in ("statistics", "affine", "both"):
        with pytest.raises(InputError, match="about batch-norm statistics, but the model has no batch-norm layer"):
            fixbn(HALF, LOCAL, fixed=fixed).divide(Layout.of(perceptron()))  # type: ignore[arg-type]


def test_the_window_fixes_when_statistics_change_evenly(federation: Federation) -> None:
    data = clients(SIZES)
    found = [
        run(federation, fixbn(Participation(), LOCAL, fix_after="window", width=2, tau=tau), data, rounds=5)
        for tau in (1e-12, 1e9)
    ]
    assert [state.phase for state in found] == [0, 1]
    at_two = run(federation, fixbn(Participation(), LOCAL, fix_after=2), data, rounds=5)
    assert same(found[1].model, at_two.model)


def fires(rule: SteadyStatistics, rounds: list[dict[int, float]]) -> list[bool]:
    memory, found = {}, []
    for number, shifts in enumerate(rounds, start=1):
        fired, memory = rule(number, None, {k: {"bn_shift": v} for k, v in shifts.items()}, memory)
        found.append(fired)
    return found


def test_windows_by_hand() -> None:
    # Client 0 varies by 1 about 2, client 1 by 0.1 about 1: variances 1 and 0.01, their mean 0.505.
    rounds = [{0: 1.0, 1: 0.9}, {0: 3.0, 1: 1.1}]
    assert fires(SteadyStatistics(2, 0.5), rounds) == [False, False]
    assert fires(SteadyStatistics(2, 0.51), rounds) == [False, True]
    assert fires(SteadyStatistics(2, 0.99, "all"), rounds) == [False, False]
    assert fires(SteadyStatistics(2, 1.01, "all"), rounds) == [False, True]
    assert fires(SteadyStatistics(2, 0.02, "any"), rounds) == [False, True]
    assert fires(SteadyStatistics(2, 0.009, "any"), rounds) == [False, False]
    # The oldest number leaves the window.
    assert fires(SteadyStatistics(2, 0.01, "any"), [{0: 9.0}, {0: 1.0}, {0: 1.1}]) == [False, False, True]
    # Client 1 was there once: left out, or waited for.
    absent = [{0: 1.0, 1: 5.0}, {0: 1.0}]
    assert fires(SteadyStatistics(2, 0.1), absent) == [False, True]
    assert fires(SteadyStatistics(2, 0.1, absent="wait"), absent) == [False, False]
    assert fires(SteadyStatistics(2, 0.1, absent="wait"), [*absent, {1: 5.0}]) == [False, False, True]
    assert fires(SteadyStatistics(2, 0.1), [{}, {}]) == [False, False]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: SteadyStatistics(1, 0.1), "algorithm.width = 1: must be a whole number >= 2"),
        (lambda: SteadyStatistics(2, 0.0), "algorithm.tau = 0.0: must be a number > 0"),
        (lambda: SteadyStatistics(2, 0.1, "most"), "algorithm.decide = 'most'"),  # type: ignore[arg-type]
        (lambda: SteadyStatistics(2, 0.1, absent="no"), "algorithm.absent = 'no'"),  # type: ignore[arg-type]
        (lambda: fixbn(HALF, LOCAL, fixed="nothing"), "algorithm.fixed = 'nothing'"),  # type: ignore[arg-type]
    ],
)
def test_what_makes_no_sense_is_refused(make: Callable[[], object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        make()
