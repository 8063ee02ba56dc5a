"""Areas under ROC curves from ranks against scikit-learn's, and what they do not depend on."""

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from raysim.measures import ranks
from raysim.measures.ranks import areas, rank_keys


def drawn(samples: int, classes: int, digits: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(samples)
    return rng.dirichlet(np.ones(classes), samples).astype(np.float32).round(digits), rng.integers(0, classes, samples)


@pytest.mark.parametrize("digits", [1, 2, 9])
@pytest.mark.parametrize("classes", [2, 3, 62])
def test_pooled_areas_are_scikit_learns(classes: int, digits: int) -> None:
    probabilities, labels = drawn(3000, classes, digits)
    found = areas(rank_keys(probabilities, labels), np.array([3000]))
    rows = range(1, 2) if classes == 2 else range(classes)
    wanted = [roc_auc_score(labels == c, probabilities[:, c]) for c in rows]
    assert found.defined.all() and found.numbers.shape == (1, len(wanted))
    np.testing.assert_allclose(found.numbers[0], wanted, rtol=0, atol=1e-12)


def test_the_order_of_samples_and_the_slices_of_classes_change_no_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    probabilities, labels = drawn(500, 7, 3)
    counts, order = np.array([120, 0, 379, 1]), np.random.default_rng(1).permutation(500)
    keys = rank_keys(probabilities, labels)
    whole, by_owner = areas(keys, np.array([500])), areas(keys, counts)
    assert areas(keys[:, order], np.array([500])).items() == whole.items()
    monkeypatch.setattr(ranks, "AT_ONCE", 1)
    assert areas(keys, counts).items() == by_owner.items()
    assert not by_owner.defined[[1, 3]].any() and by_owner.defined[[0, 2]].all()


@pytest.mark.parametrize("wrong", [np.nan, -np.nan, np.inf])
def test_only_the_owner_of_a_probability_that_is_not_finite_has_none(wrong: float) -> None:
    probabilities, labels = drawn(30, 3, 9)
    counts = np.array([10, 10, 10])
    right = areas(rank_keys(probabilities, labels), counts)
    probabilities[15] = wrong
    found = areas(rank_keys(probabilities, labels), counts)
    assert np.isnan(found.numbers[1]).all() and found.defined[1].all()
    np.testing.assert_array_equal(found.numbers[[0, 2]], right.numbers[[0, 2]])


def test_zeros_of_both_signs_are_a_tie() -> None:
    probabilities = np.array([[0.0, 1.0], [-0.0, 1.0]], np.float32)[:, ::-1]
    assert areas(rank_keys(probabilities, np.array([0, 1])), np.array([2])).items() == [0.5]


def test_no_samples() -> None:
    found = areas(np.empty((3, 0), np.uint32), np.array([0, 0]))
    assert found.items() == [None] * 6
