"""Epsilon and noise multipliers against `dp-accounting` called by hand."""

import logging
from math import inf

import dp_accounting
import numpy as np
import pytest
from dp_accounting import pld, rdp

from algorithms.options.privacy import Spent
from raysim.common.errors import InputError
from raysim.measures.epsilon.accounting import Accountant, AccountantName, Events, told_if_slow


def by_hand(by: AccountantName, events: Events, delta: float) -> float:
    accountant = rdp.RdpAccountant() if by == "rdp" else pld.PLDAccountant()
    for rate, noise, rounds in events:
        event = dp_accounting.PoissonSampledDpEvent(rate, dp_accounting.GaussianDpEvent(noise))
        accountant.compose(event, rounds)
    return float(accountant.get_epsilon(delta))


def drawn(rng: np.random.Generator) -> tuple[list[tuple[float, float, int]], float]:
    rates, noises = rng.choice([0.003, 0.02, 0.11, 0.35, 0.7, 1.0], 2), rng.choice([0.6, 0.9, 1.3, 2.0, 4.5], 2)
    rounds = np.exp(rng.uniform(0, 7, 2)).astype(int) + 1
    events = list(zip(rates.tolist(), noises.tolist(), rounds.tolist(), strict=True))[: rng.integers(1, 3)]
    return events, float(10 ** rng.uniform(-8, -2))


@pytest.fixture(autouse=True)
def quiet() -> None:
    logging.getLogger("absl").setLevel(logging.ERROR)


def agree(by: AccountantName, configurations: int) -> None:
    rng = np.random.default_rng(3)
    for _ in range(configurations):
        events, delta = drawn(rng)
        assert Accountant(delta, by).epsilon(events) == pytest.approx(by_hand(by, events, delta), abs=1e-6)


def test_renyi_epsilon_is_that_of_a_call_by_hand() -> None:
    agree("rdp", 4)


@pytest.mark.slow
def test_renyi_epsilon_of_a_thousand_configurations_is_that_of_a_call_by_hand() -> None:
    agree("rdp", 1000)


@pytest.mark.slow
def test_privacy_loss_epsilon_is_that_of_a_call_by_hand() -> None:
    agree("pld", 10)


def test_full_participation_is_the_gaussian_mechanism() -> None:
    """T rounds with noise z are one with noise z / sqrt(T); epsilon 3.8486 for z = 5, T = 20 and delta = 1e-5."""
    assert Accountant(1e-5).epsilon([(1.0, 5.0, 20)]) == pytest.approx(3.8486104, abs=1e-5)
    assert Accountant(1e-5, "rdp").epsilon([(1.0, 5.0, 20)]) > 3.8486


@pytest.mark.parametrize("by", ["rdp", "pld"])
def test_no_rounds_spend_nothing_and_no_noise_everything(by: AccountantName) -> None:
    accountant = Accountant(1e-5, by)
    assert accountant.epsilon(()) == 0.0
    assert accountant.epsilon([(0.1, 1.0, 3), (0.1, 0.0, 1)]) == inf


@pytest.mark.parametrize(
    ("by", "rate", "rounds", "epsilon"),
    [*(("rdp", 0.05, 30, 3.0), ("pld", 1.0, 10, 2.0)), pytest.param("pld", 0.05, 30, 3.0, marks=pytest.mark.slow)],
)
def test_the_noise_of_an_epsilon_reaches_it_and_hardly_less_does_not(
    by: AccountantName, rate: float, rounds: int, epsilon: float
) -> None:
    noise = Accountant(1e-5, by).noise(epsilon, rate, rounds)
    assert epsilon * 0.998 < by_hand(by, [(rate, noise, rounds)], 1e-5) <= epsilon
    assert by_hand(by, [(rate, noise * 0.999, rounds)], 1e-5) > epsilon


def test_an_epsilon_out_of_reach_is_refused() -> None:
    with pytest.raises(InputError, match=r"privacy.epsilon = 1e-09: must be reached by a noise in"):
        Accountant(1e-12, "rdp").noise(1e-9, 1.0, 1000)


@pytest.mark.parametrize("by", ["pld", "rdp"])
def test_an_epsilon_that_delta_alone_covers_is_refused(by: AccountantName) -> None:
    """With rate = delta, a mechanism without noise has epsilon 0."""
    with pytest.raises(InputError, match=r"privacy.delta = 0.01: must be below 0.01, the chance of a client"):
        Accountant(1e-2, by).noise(1.0, 0.01, 1)


@pytest.mark.parametrize(
    ("by", "epsilon", "delta", "rate", "rounds"),
    [
        ("rdp", 0.05, 1e-2, 0.012, 1),
        ("rdp", 30.0, 1e-5, 0.3, 2),
        ("pld", 0.01, 1e-3, 0.01, 3),
        pytest.param("pld", 0.5, 0.1, 0.5, 2, marks=pytest.mark.slow),
    ],
)
def test_an_epsilon_beside_a_large_delta_is_reached(
    by: AccountantName, epsilon: float, delta: float, rate: float, rounds: int
) -> None:
    """Epsilon is 0 for much of the noise that is tried."""
    accountant = Accountant(delta, by)
    noise = accountant.noise(epsilon, rate, rounds)
    assert accountant.epsilon([(rate, noise, rounds)]) <= epsilon
    assert accountant.epsilon([(rate, noise * 0.999, rounds)]) > epsilon


@pytest.mark.parametrize(("epsilon", "rate", "rounds"), [(1.0, 0.01, 10), (0.5, 0.01, 1000)])
def test_a_delta_that_the_accountant_cannot_see_is_refused(epsilon: float, rate: float, rounds: int) -> None:
    """Privacy loss distributions cut tails of 1e-15: the noise that seemed to reach epsilon had an infinite one."""
    with pytest.raises(InputError, match=r"privacy.delta = 1e-15 .*: must be larger, .*= 1e-9, or .* = 'rdp'$"):
        Accountant(1e-15).noise(epsilon, rate, rounds)
    accountant = Accountant(1e-15, "rdp")
    assert accountant.epsilon([(rate, accountant.noise(epsilon, rate, rounds), rounds)]) <= epsilon


def test_a_long_accounting_tells_of_the_faster_one(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    monkeypatch.setattr("raysim.measures.epsilon.accounting.PATIENCE", 0.0)
    with told_if_slow("pld", told.append):
        Accountant(1e-5).noise(2.0, 1.0, 10)
    assert told == ["[privacy]: the accounting by 'pld' takes more than 0 s; privacy.accountant = 'rdp' is faster"]


def test_rounds_in_a_row_are_counted_and_others_kept_apart() -> None:
    spent = Spent(1.0)
    for rate, noise in ((0.1, 1.0), (0.1, 1.0), (0.1, 2.0), (0.1, 1.0)):
        spent = spent.after(rate, noise, 1.0)
    assert spent.events == ((0.1, 1.0, 2), (0.1, 2.0, 1), (0.1, 1.0, 1))
