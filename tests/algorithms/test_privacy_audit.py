"""Audit of differential privacy: an inserted client is told from its absence no better than epsilon allows."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.stats import beta
from torch import nn

from algorithms import AdaptiveClip, Local, Participation, Privacy, Rounds, Uplink, begin, fedavg, next_round
from algorithms.options.stages import Clip
from raysim.fleet.inline import InlineFleet
from raysim.measures.epsilon.accounting import Accountant
from tests.kit.federation import clients, perceptron

Federation = Callable[..., InlineFleet]
DELTA, CLIP = 1e-3, 0.2
OTHERS = clients((5,), seed=2)
CANARY = (30 * torch.ones(4, 4), torch.full((4,), 2))
NOBODY = (torch.empty(0, 4), torch.empty(0, dtype=torch.int64))
ALGORITHM = fedavg(Participation(1.0, by="poisson"), Local(lr=50.0, batch_size="full"), weighting="equal")


def models(
    federation: Federation, last: tuple[torch.Tensor, torch.Tensor], privacy: Privacy, runs: range
) -> np.ndarray:
    """The model after one round of each run, a seed each, with a last client of these samples."""
    algorithm = ALGORITHM.having(privacy)
    fleet = federation([*OTHERS, last], perceptron(), algorithm.sharing, block=4)
    found = [next_round(begin(perceptron(), fleet, seed, 1), algorithm, fleet, last=True) for seed in runs]
    return np.array([state.model.floats for state in found])


def lower_bound(federation: Federation, privacy: Privacy, trials: int) -> float:
    """The largest epsilon that the runs refute at 99 % confidence; half of them choose the threshold.

    The test statistic is the model along the canary's change. Paper: Nasr et al., "Adversary Instantiation", 2021, with
    Clopper and Pearson's intervals.
    """
    quiet = Privacy(0.0, CLIP)
    present, absent = (models(federation, last, quiet, range(1))[0] for last in (CANARY, NOBODY))
    with_canary = models(federation, CANARY, privacy, range(trials)) @ (present - absent)
    without = models(federation, NOBODY, privacy, range(trials, 2 * trials)) @ (present - absent)
    thresholds = np.quantile(np.concatenate([with_canary[::2], without[::2]]), np.linspace(0.02, 0.98, 97))
    chosen = max(thresholds, key=lambda t: bound(with_canary[::2] > t, without[::2] > t))
    return bound(with_canary[1::2] > chosen, without[1::2] > chosen)


def bound(hits: np.ndarray, false_alarms: np.ndarray) -> float:
    """The lower bound of epsilon from both rates, each with half of the 1 %."""
    count, hit, wrong = len(hits), int(hits.sum()), int(false_alarms.sum())
    least = beta.ppf(0.005, hit, count - hit + 1) if hit else 0.0
    most = beta.ppf(0.995, wrong + 1, count - wrong) if wrong < count else 1.0
    return float(np.log((least - DELTA) / most)) if least > DELTA else 0.0


def epsilon(privacy: Privacy) -> float:
    return Accountant(DELTA).epsilon([(1.0, privacy.noise, 1)])


AUDITED = Privacy(3.0, CLIP), 40
"""Privacy, and trials that would find a mistake in it: 20 hits of 20 refute an epsilon below 1.18, and it has 0.83."""


def test_the_lower_bound_does_not_exceed_epsilon(federation: Federation) -> None:
    """The bound is far from trivial: the canary uses the whole of C."""
    assert lower_bound(federation, Privacy(0.5, CLIP), 120) > 0.6
    assert lower_bound(federation, *AUDITED) <= epsilon(AUDITED[0])


def test_without_noise_it_does(federation: Federation, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Privacy, "sum_noise", property(lambda privacy: 1e-6))
    assert lower_bound(federation, *AUDITED) > epsilon(AUDITED[0])


def test_with_a_wrong_norm_it_does(federation: Federation, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Uplink, "clipped", lambda uplink, norm: Uplink((Clip(20 * norm),)))
    assert lower_bound(federation, *AUDITED) > epsilon(AUDITED[0])


@pytest.mark.parametrize("adaptive", [None, AdaptiveClip(0.6)])
def test_the_noise_of_a_round_has_the_size_that_is_accounted(
    federation: Federation, adaptive: AdaptiveClip | None
) -> None:
    """Nobody has a sample, so all that moves the model is noise; a factor of 1.1 is seen, and repeated noise."""
    privacy = Privacy(1.0, CLIP, adaptive)
    algorithm = replace(ALGORITHM, schedule=Rounds(Participation(0.4, by="poisson"))).having(privacy)
    wide = nn.Sequential(nn.Linear(4, 60), nn.ReLU(), nn.Linear(60, 3))
    fleet = federation([NOBODY] * 10, wide, algorithm.sharing, block=4)
    # Between entries the vector has places without a value.
    used = np.concatenate([np.r_[place] for _, place in fleet.layouts.shared.places()])
    first, second = [], []
    for seed in range(20):
        start = begin(wide, fleet, seed, 2)
        one = next_round(start, algorithm, fleet)
        two = next_round(one, algorithm, fleet, last=True)
        assert one.of("privacy")
        first.append((one.model.floats - start.model.floats)[used] / CLIP)
        second.append((two.model.floats - one.model.floats)[used] / one.of("privacy")["clip"])
    expected = privacy.sum_noise / (0.4 * 10)
    for noise in (first, second):
        assert np.std(noise) == pytest.approx(expected, rel=0.05) and abs(np.mean(noise)) < 0.05 * expected
    assert abs(np.corrcoef(np.ravel(first), np.ravel(second))[0, 1]) < 0.05


def test_noise_that_is_not_solved_cannot_run(federation: Federation) -> None:
    with pytest.raises(ValueError, match="not solved"):
        models(federation, NOBODY, Privacy(None, CLIP), range(1))
