import numpy as np
import pytest
from sklearn.metrics import f1_score, roc_auc_score

from raysim.measures.metrics import METRICS, Score, accuracy, auc, loss, macro_f1, miou, pooled, weighted_f1


def score_of(labels: np.ndarray, probabilities: np.ndarray) -> Score:
    confusion = np.zeros((probabilities.shape[1],) * 2, np.int64)
    np.add.at(confusion, (labels, probabilities.argmax(1)), 1)
    return Score(confusion, 2.0 * len(labels), labels, probabilities)


@pytest.fixture
def drawn() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return rng.integers(0, 4, 60), rng.dirichlet(np.ones(4), 60).astype(np.float32)


def test_metrics_from_counts_are_scikit_learns(drawn: tuple[np.ndarray, np.ndarray]) -> None:
    labels, probabilities = drawn
    score, predicted = score_of(*drawn), probabilities.argmax(1)
    assert accuracy(score) == pytest.approx((labels == predicted).mean())
    assert macro_f1(score) == pytest.approx(f1_score(labels, predicted, average="macro"))
    assert weighted_f1(score) == pytest.approx(f1_score(labels, predicted, average="weighted"))
    areas = [roc_auc_score(labels == c, probabilities[:, c]) for c in range(4)]
    assert auc(score) == pytest.approx(np.mean(areas))
    assert loss(score) == 2


def test_pooling_adds_up(drawn: tuple[np.ndarray, np.ndarray]) -> None:
    labels, probabilities = drawn
    parts = [score_of(labels[a:b], probabilities[a:b]) for a, b in ((0, 7), (7, 30), (30, 60))]
    for metric in METRICS.values():
        assert metric(pooled(parts)) == pytest.approx(metric(score_of(*drawn)))


def test_auc_of_one_class_is_undefined_and_that_of_a_diverged_model_not_a_number() -> None:
    one_class, even = np.zeros(3, np.int64), np.full((3, 2), 0.5, np.float32)
    assert auc(score_of(one_class, even)) is None
    for labels in (one_class, np.array([0, 1, 0])):
        assert np.isnan(auc(score_of(labels, np.full_like(even, np.nan))) or 0)


def test_auc_of_two_classes_is_that_of_the_second() -> None:
    labels = np.array([0, 0, 1, 1])
    second = np.array([0.1, 0.6, 0.5, 0.9], np.float32)
    assert auc(score_of(labels, np.stack([1 - second, second], 1))) == 0.75


def test_auc_needs_probabilities() -> None:
    with pytest.raises(ValueError, match="needs the samples' probabilities"):
        auc(Score(np.eye(2, dtype=np.int64), 0.0))


def test_miou_by_hand() -> None:
    # Class 0 has 2 hits in a union of 3, class 1 has 1 in 1, class 2 is only predicted, class 3 does not occur.
    confusion = np.array([[2, 0, 1, 0], [0, 1, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0]])
    assert miou(Score(confusion, 0.0)) == pytest.approx((2 / 3 + 1 + 0) / 3)
    assert miou(Score(np.array([[3, 1], [2, 4]]), 0.0)) == pytest.approx((3 / 6 + 4 / 7) / 2)
    assert miou(Score(np.diag([3, 0, 2]), 0.0)) == 1
