"""Areas under ROC curves from ranks against scikit-learn's, and what they do not depend on."""

from fractions import Fraction
from functools import partial

import numpy as np
import pytest
import torch
from scipy.special import logsumexp
from sklearn.metrics import roc_auc_score

from raysim.measures import ranks
from raysim.measures.ranks import log_odds, rank_keys, ranked

areas = partial(ranked, "auc")


def drawn(samples: int, classes: int, digits: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(samples)
    return rng.normal(size=(samples, classes)).round(digits), rng.integers(0, classes, samples)


@pytest.mark.parametrize("digits", [1, 2, 9])
@pytest.mark.parametrize("classes", [2, 3, 62])
def test_pooled_areas_are_scikit_learns(classes: int, digits: int) -> None:
    scores, labels = drawn(1000, classes, digits)
    found = areas(rank_keys(scores, labels), np.array([1000]))
    rows = range(1, 2) if classes == 2 else range(classes)
    wanted = [roc_auc_score(labels == c, scores[:, c]) for c in rows]
    assert found.defined.all() and found.numbers.shape == (1, len(wanted))
    np.testing.assert_allclose(found.numbers[0], wanted, rtol=0, atol=1e-12)


def test_the_order_of_samples_and_the_slices_of_classes_change_no_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    scores, labels = drawn(500, 7, 3)
    counts, order = np.array([120, 0, 379, 1]), np.random.default_rng(1).permutation(500)
    keys = rank_keys(scores, labels)
    whole, by_owner = areas(keys, np.array([500])), areas(keys, counts)
    assert areas(keys[:, order], np.array([500])).items() == whole.items()
    monkeypatch.setattr(ranks, "AT_ONCE", 1)
    assert areas(keys, counts).items() == by_owner.items()
    assert not by_owner.defined[[1, 3]].any() and by_owner.defined[[0, 2]].all()


@pytest.mark.parametrize("wrong", [np.nan, -np.nan])
def test_only_the_owner_of_a_score_that_is_not_a_number_has_none(wrong: float) -> None:
    scores, labels = drawn(30, 3, 9)
    counts = np.array([10, 10, 10])
    right = areas(rank_keys(scores, labels), counts)
    scores[15] = wrong
    found = areas(rank_keys(scores, labels), counts)
    assert np.isnan(found.numbers[1]).all() and found.defined[1].all()
    np.testing.assert_array_equal(found.numbers[[0, 2]], right.numbers[[0, 2]])


def test_zeros_of_both_signs_are_a_tie() -> None:
    scores = np.array([[0.0, 1.0], [-0.0, 1.0]], np.float32)[:, ::-1]
    assert areas(rank_keys(scores, np.array([0, 1])), np.array([2])).items() == [0.5]


def test_infinite_scores_are_the_first_and_the_last() -> None:
    scores = np.array([[-np.inf], [-3e38], [3e38], [np.inf]]).repeat(3, axis=1)
    labels = np.array([0, 1, 0, 1])
    assert areas(rank_keys(scores, labels), np.array([4])).items() == [0.25, 0.75, None]


@pytest.mark.parametrize("classes", [2, 3])
def test_confident_predictions_keep_their_order(classes: int) -> None:
    """Samples of the last class whose float32 probability is 0 or 1, each with a larger gap than the one before."""
    gaps = torch.cat([-torch.arange(80.0, 20, -1), torch.arange(20.0, 80)])
    logits = torch.nn.functional.pad(gaps[:, None], (classes - 1, 0))
    assert logits.softmax(1)[:, -1].unique().numel() < len(gaps)
    labels = np.where(np.arange(len(gaps)) % 2, classes - 1, 0)
    won = sum(j < i for i in range(1, 120, 2) for j in range(0, 120, 2))
    found = areas(rank_keys(log_odds(logits).numpy(), labels), np.array([len(gaps)]))
    assert found.items()[-1] == float(Fraction(won, 60 * 60))


@pytest.mark.parametrize(("scale", "offset"), [(1e-6, 0.0), (1e-6, 5.0), (1e-4, 1.0), (1.0, 0.0)])
@pytest.mark.parametrize("classes", [2, 3, 25])
def test_areas_of_logits_are_those_of_float64(classes: int, scale: float, offset: float) -> None:
    """Also of nearly uniform predictions, and with an offset of one class, where float32 ties many samples."""
    rng = np.random.default_rng(0)
    labels, logits = rng.integers(0, classes, 3000), rng.normal(size=(3000, classes))
    logits[np.arange(3000), labels] += 1
    logits = torch.from_numpy(scale * logits + offset * (np.arange(classes) == 0)).float()
    exact = logits.double()
    scores = exact - exact.flip(1) if classes == 2 else exact.log_softmax(1)
    wanted = [roc_auc_score(labels == c, scores[:, c]) for c in range(1 if classes == 2 else 0, classes)]
    found = areas(rank_keys(log_odds(logits).numpy(), labels), np.array([3000]))
    np.testing.assert_allclose(found.numbers[0], wanted, rtol=0, atol=1e-12)


def test_the_order_of_the_other_logits_breaks_no_tie() -> None:
    logits = torch.randn(200, 7, generator=torch.Generator().manual_seed(0)).round(decimals=1)
    others = logits[:, [0, 4, 2, 6, 1, 5, 3]]
    assert torch.equal(log_odds(logits)[:, 0], log_odds(others)[:, 0])
    assert log_odds(torch.tensor([[2.0, 2.0, 1.0, 0.1]]))[0, :2].unique().numel() == 1


def test_keys_keep_all_bits_of_a_score() -> None:
    sizes = np.array([0, 2.0**-149, np.nextafter(1, 0), 1, np.nextafter(1, 2), 2.0**128, np.inf])
    scores = np.concatenate([-sizes[::-1], sizes[1:]])
    assert (np.diff(rank_keys(scores[:, None], np.ones(13, np.int64))[0] >> 1) > 0).all()


def test_log_odds_are_those_of_exact_probabilities() -> None:
    logits = torch.tensor([[0.5, -1.0, 2.0, 0.0], [3.0, 3.0, -700.0, 3.0], [0.0, 900.0, -900.0, 1.0]])
    for row, found in zip(logits.double(), log_odds(logits), strict=True):
        for c, odds in enumerate(found):
            rest = row[[j for j in range(4) if j != c]].numpy()
            assert float(odds) == pytest.approx(float(row[c]) - logsumexp(rest) + np.log(3), rel=1e-14, abs=1e-15)


def test_log_odds_of_two_classes_are_the_difference_of_logits() -> None:
    logits = torch.randn(1000, 2, generator=torch.Generator().manual_seed(0)) * 100
    first, second = logits.double().T
    assert torch.equal(log_odds(logits), torch.stack([first - second, second - first], 1))


@pytest.mark.parametrize("classes", [1, 2, 3])
def test_log_odds_are_not_a_number_where_the_probabilities_are_not(classes: int) -> None:
    values = torch.tensor([0.0, 5.0, torch.inf, -torch.inf, torch.nan])
    logits = torch.cartesian_prod(*[values] * classes).reshape(-1, classes)
    assert torch.equal(log_odds(logits).isnan(), logits.softmax(1).isnan())


def test_no_samples() -> None:
    found = areas(np.empty((3, 0), np.int64), np.array([0, 0]))
    assert found.items() == [None] * 6


def test_scores_tie_at_the_documented_sizes_alone() -> None:
    sizes = np.array([0.0, 2.0**-512, 2.0**-511, 2.0**511, 2.0**511.5, 2.0**512, np.inf])
    below, least, more, *large, limit, infinite = rank_keys(np.stack([np.zeros(7), sizes], 1), np.zeros(7, int))[0]
    assert below == least < more < large[0] < large[1] < limit == infinite
