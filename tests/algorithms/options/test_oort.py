"""Oort: utilities by hand, exploration, the pacer, and a run."""

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from algorithms import (
    Compute,
    InputError,
    Local,
    Participation,
    Purpose,
    begin,
    fedasync,
    fedavg,
    generator,
    next_round,
    phases,
)
from algorithms.core.report import UpdateRows
from algorithms.options.oort import Oort
from raysim.fleet.inline import InlineFleet
from tests.kit.arrivals import table
from tests.kit.federation import clients, perceptron

Federation = Callable[..., InlineFleet]
IDS = np.array([2, 3, 5, 7, 11, 13])


def rows(ids: list[int], samples: list[float], rms: list[float]) -> UpdateRows:
    reports = [{"samples": n, "loss_rms": each, "steps": 1.0} for n, each in zip(samples, rms, strict=True)]
    return UpdateRows.of(ids, reports, [1.0] * len(ids), [None] * len(ids), [None] * len(ids))


def test_the_memory_by_hand() -> None:
    oort = Oort(window=1, step=20.0)
    first = oort.moved({}, IDS, rows([3, 7], [10, 4], [2.0, 1.5]), np.array([5.0, 1.0]), 1)
    np.testing.assert_equal(first["utility"], [np.nan, 20, np.nan, 6, np.nan, np.nan])
    np.testing.assert_equal(first["last"], [np.nan, 1, np.nan, 1, np.nan, np.nan])
    assert first["rounds"].tolist() == [26] and first["pace"].tolist() == [30]
    # The utilities of the second round are less, so the pacer lets the preferred time grow.
    second = oort.moved(first, IDS, rows([7, 11], [4, 1], [1.0, 1.0]), np.array([1.0, 2.0]), 2)
    np.testing.assert_equal(second["utility"], [np.nan, 20, np.nan, 4, 1, np.nan])
    assert second["pace"].tolist() == [50] and second["rounds"].tolist() == [5]


def test_the_first_round_draws_new_clients_by_speed() -> None:
    seconds = {2: 1.0, 3: 1.0, 5: 1.0, 7: 1e6, 11: 1e6, 13: 1e6}
    streams = map(np.random.default_rng, range(40))
    drawn = [Oort().draw({}, IDS, IDS, 3, seconds.__getitem__, rng, 1).tolist() for rng in streams]
    assert all(each == [2, 3, 5] for each in drawn)


def test_explored_clients_are_drawn_by_utility_and_speed() -> None:
    nan = np.nan
    memory = {
        "utility": np.array([100.0, 100.0, 1.0, 100.0, nan, nan]),
        "last": np.array([9.0, 9.0, 9.0, 9.0, nan, nan]),
        "seconds": np.array([1.0, 1.0, 1.0, 1e4, nan, nan]),
        "rounds": np.array([1.0]),
        "pace": np.array([50.0]),
    }
    oort = Oort(exploration=0.0, least=0.0)
    streams = map(np.random.default_rng, range(20))
    found = [oort.draw(memory, IDS, IDS, 2, lambda client: 1.0, rng, 10).tolist() for rng in streams]
    assert all(each == [2, 3] for each in found)  # neither the small loss of 5 nor the slow device of 7
    half = Oort(exploration=0.5, decay=1.0)
    for rng in map(np.random.default_rng, range(20)):
        chosen = half.draw(memory, IDS, IDS, 4, lambda client: 1.0, rng, 10).tolist()
        assert {11, 13} <= set(chosen) and {2, 3} <= set(chosen)
    absent = np.array([False, True, True, False, True, True])
    chosen = half.draw(memory, IDS, IDS[absent], 6, lambda client: 1.0, np.random.default_rng(0), 10).tolist()
    assert chosen == [3, 5, 11, 13]  # all that are available


@pytest.mark.parametrize(("share", "chosen"), [(0.677, 2), (0.6835, 3)])
def test_a_client_that_was_long_away_is_worth_more(share: float, chosen: int) -> None:
    """In round 10: 1 + sqrt(0.1 ln(10) / 9) = share + sqrt(0.1 ln(10) / 1) for a share of 0.680."""
    utility = 0.95 * share / (1 - 0.05 * share)  # the share is of the 95th percentile of both
    nan = np.nan
    memory = {
        "utility": np.array([1.0, utility, nan, nan, nan, nan]),
        "last": np.array([9.0, 1.0, nan, nan, nan, nan]),
        "seconds": np.array([1.0, 1.0, nan, nan, nan, nan]),
        "rounds": np.array([1.0]),
        "pace": np.array([50.0]),
    }
    oort = Oort(exploration=0.0, least=0.0, cutoff=1.0)
    assert oort.draw(memory, IDS, IDS, 1, lambda client: 1.0, np.random.default_rng(0), 10).tolist() == [chosen]


def test_exploration_fades() -> None:
    memory: dict[str, Any] = {
        "utility": np.array([1.0] * 3 + [np.nan] * 3),
        "last": np.array([1.0] * 3 + [np.nan] * 3),
        "seconds": np.array([1.0] * 3 + [np.nan] * 3),
        "rounds": np.array([1.0]),
        "pace": np.array([50.0]),
    }

    def new(number: int) -> int:
        rng = np.random.default_rng(0)
        return int((Oort().draw(memory, IDS, IDS, 3, lambda client: 1.0, rng, number) > 5).sum())

    assert [new(number) for number in (1, 40, 200)] == [3, 2, 1]


def test_a_run_prefers_large_losses(federation: Federation) -> None:
    compute, local = Compute("sequential", "fp64"), Local(lr=0.05, batch_size=4)
    algorithm = fedavg(Participation(cohort=3, by=Oort(exploration=1.0, decay=0.5, least=0.0)), local)
    data = clients([10] * 8)
    fleet = federation(data, perceptron(True).double(), algorithm.sharing, compute=compute)
    fleet.census = replace(fleet.census, devices=table([5.0] * 8))
    state = begin(perceptron(True).double(), fleet, 0, 6)
    received = state
    for _ in range(6):
        received, state = state, next_round(state, algorithm.computed(compute), fleet)
    assert state.report is not None
    x, y = data[int(state.report.updates.clients[0])]
    module = perceptron(True).double().eval()
    values = fleet.layouts.model(received.model, received.average)
    module.load_state_dict({name: torch.tensor(value) for name, value in values.items()})
    with torch.no_grad():
        losses = torch.nn.functional.cross_entropy(module(x.double()), y, reduction="none")
    assert state.report.updates.column("loss_rms")[0] == pytest.approx(float(losses.square().mean().sqrt()))
    explored = ~np.isnan(state.of("oort")["utility"])
    assert 3 <= explored.sum() <= 8 and state.of("oort")["last"][explored].max() == 6


def test_rounds_after_arrivals_have_draws_of_their_own(federation: Federation) -> None:
    """The key counts the dispatches; exploration decays by the round."""
    local, oort = Local(lr=0.05, batch_size=4), Oort(exploration=1.0, decay=0.1, least=0.0)
    half = Participation(cohort=4)
    algorithm = phases(fedasync(half, local), (2, fedavg(replace(half, by=oort), local)))
    fleet = federation(clients([10] * 8), perceptron(), algorithm.sharing)
    fleet.census = replace(fleet.census, devices=table([5.0] * 8))
    state = begin(perceptron(), fleet, 0)
    for _ in range(2):
        state = next_round(state, algorithm, fleet)
    ids, rng = np.arange(8), generator(0, Purpose.COHORT, state.of("arrivals")["timeline"].known + 3)
    state = next_round(state, algorithm, fleet)
    assert state.report is not None
    assert state.report.updates.clients.tolist() == oort.draw({}, ids, ids, 4, lambda client: 5.0, rng, 3).tolist()


@pytest.mark.parametrize(
    ("given", "allowed"),
    [
        ({"alpha": -1.0}, "a number >= 0"),
        ({"pace": 0.0}, "in (0, 100]"),
        ({"window": 0}, "a whole number >= 1"),
        ({"cutoff": 1.5}, "in (0, 1]"),
        ({"decay": 0.0}, "in (0, 1]"),
        ({"least": -0.1}, "in [0, 1]"),
        ({"exploration": 1.1}, "in [0, 1]"),
    ],
)
def test_numbers_out_of_range(given: dict[str, Any], allowed: str) -> None:
    ((name, value),) = given.items()
    text = re.escape(f"algorithm.oort.{name} = {value}: must be {allowed}; leave it out")
    with pytest.raises(InputError, match=text):
        Oort(**given)
