"""Poisson sampling: every client joins a round with the same probability, independently of all others."""

from collections.abc import Callable
from copy import deepcopy

import numpy as np
from scipy.stats import binom, chisquare

from algorithms import Local, Participation, fedavg
from raysim.fleet.inline import InlineFleet
from tests.kit.reference import DATA, agree, drawn, engine, mean, module, sgd, train

Federation = Callable[..., InlineFleet]
LOCAL = Local(lr=0.05, batch_size=4)
CLIENTS = np.arange(20) * 3


def cohorts(rate: float, rounds: int = 4000) -> list[np.ndarray]:
    participation = Participation(rate, by="poisson")
    return [participation.draw(CLIENTS, 7, number) for number in range(1, rounds + 1)]


def test_the_size_is_binomial_and_every_client_equally_likely() -> None:
    found = cohorts(0.15)
    sizes = np.bincount([len(each) for each in found], minlength=8)
    expected = len(found) * binom.pmf(np.arange(8), 20, 0.15)
    seen = np.append(sizes[:8], sizes[8:].sum())
    assert chisquare(seen, np.append(expected, len(found) - expected.sum())).pvalue > 1e-3
    assert sizes[0] > 0
    joined = np.array([np.isin(CLIENTS, each) for each in found])
    deviations = (joined.sum(axis=0) - 0.15 * len(found)) / np.sqrt(len(found) * 0.15 * 0.85)
    assert np.abs(deviations).max() < 4
    assert abs(np.corrcoef(joined[:, :2].T)[0, 1]) < 4 / np.sqrt(len(found))


def test_rate_one_draws_all() -> None:
    assert all(np.array_equal(each, CLIENTS) for each in cohorts(1.0, 5))
    assert Participation(0.29, by="poisson").size(100) == 29


def test_federated_averaging_over_cohorts_of_any_size(federation: Federation) -> None:
    participation = Participation(0.3, by="poisson")
    state, fleet = engine(federation, fedavg(participation, LOCAL), rounds=8)
    x, sizes = module(), []
    for number in range(1, 9):
        cohort = participation.draw(np.arange(6), 0, number)
        sizes.append(len(cohort))
        models = [deepcopy(x) for _ in cohort]
        for model, client in zip(models, cohort, strict=True):
            train(model, DATA[client], drawn(LOCAL, DATA[client], number, int(client)), sgd(LOCAL.lr))
        if models:
            x.load_state_dict(mean(models, [len(DATA[client][1]) for client in cohort]))
    assert min(sizes) == 0 and max(sizes) > 2
    agree(state, fleet, x.state_dict())
