"""Metrics of many classifiers at once against scikit-learn's of each one."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.metrics import accuracy_score, average_precision_score, f1_score, jaccard_score, roc_auc_score

from algorithms import InputError
from raysim.common.errors import InputError as RunInputError
from raysim.measures.metrics import (
    METRICS,
    Metric,
    Score,
    Values,
    accuracy,
    auc,
    average_precision,
    loss,
    macro_f1,
    miou,
    own_metric,
    weighted_f1,
)
from raysim.measures.ranks import RANKED, rank_keys, ranked
from raysim.measures.scoring import check_metrics

REFERENCES = {
    "accuracy": accuracy_score,
    "macro_f1": lambda truth, predicted: f1_score(truth, predicted, average="macro", zero_division=0),
    "weighted_f1": lambda truth, predicted: f1_score(truth, predicted, average="weighted", zero_division=0),
    "miou": lambda truth, predicted: jaccard_score(truth, predicted, average="macro", zero_division=0),
}


def score_of(labels: np.ndarray, probabilities: np.ndarray, counts: list[int] | None = None) -> Score:
    """Score of owners with these numbers of samples; a single one by default."""
    counts, classes = counts or [len(labels)], probabilities.shape[1]
    owners, predicted = np.repeat(np.arange(len(counts)), counts), probabilities.argmax(1)

    def count(which: np.ndarray, rows: np.ndarray | slice = slice(None)) -> np.ndarray:
        found = np.zeros((len(counts), classes), np.int64)
        np.add.at(found, (owners[rows], which[rows]), 1)
        return found

    keys = rank_keys(probabilities, labels)
    ranks = {name: ranked(name, keys, np.array(counts)) for name in RANKED}
    sums = {name: _sums_of(METRICS[name], probabilities, labels, owners, len(counts)) for name in ("brier", "ece")}
    hits = count(labels, labels == predicted)
    return Score(hits, count(labels), count(predicted), 2.0 * np.array(counts), ranks, sums)


def _sums_of(metric: Metric, probabilities: np.ndarray, labels: np.ndarray, owners: np.ndarray, count: int) -> Any:
    assert metric.sums is not None and metric.of_classes
    with np.errstate(divide="ignore"):
        logits = torch.from_numpy(np.log(probabilities.astype(np.float64)))
    numbers = metric.sums(logits, torch.from_numpy(labels)).numpy()
    found = np.zeros((count, numbers.shape[1] + 1))
    np.add.at(found, owners, np.concatenate([numbers, np.ones((len(labels), 1))], 1))
    return found


def ece_by_hand(truth: np.ndarray, probabilities: np.ndarray) -> float:
    shares = probabilities.astype(np.float64)
    shares /= shares.sum(1, keepdims=True)
    confidence, hits = shares.max(1), shares.argmax(1) == truth
    total = 0.0
    for low in range(15):
        inside = (confidence > low / 15) & (confidence <= (low + 1) / 15)
        if inside.any():
            total += inside.sum() * abs(hits[inside].mean() - confidence[inside].mean())
    return total / len(truth)


def value_of(values: Values) -> float | None:
    (value,) = values.items()
    return value


@pytest.fixture
def drawn() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return rng.integers(0, 4, 60), rng.dirichlet(np.ones(4), 60).astype(np.float32)


@pytest.mark.parametrize("seed", [11, 14, 21, 24, 1, 8])  # two of them with two classes, two with three
def test_every_owner_has_scikit_learns_values(seed: int) -> None:
    """Owners of 0 to 14 samples: absent classes, one class only, and coarse probabilities with ties."""
    rng = np.random.default_rng(seed)
    classes, counts = int(rng.integers(2, 7)), rng.integers(0, 15, 9).tolist()
    probabilities = rng.dirichlet(np.ones(classes), sum(counts)).astype(np.float32).round(int(rng.integers(1, 8)))
    labels = rng.integers(0, classes, sum(counts)) % rng.integers(1, classes + 1)
    score, starts = score_of(labels, probabilities, counts), np.cumsum([0, *counts])
    found = {name: metric.value(score).items() for name, metric in METRICS.items() if "class" in metric.labels}
    for owner, (start, stop) in enumerate(pairwise(starts)):
        truth, predicted = labels[start:stop], probabilities[start:stop].argmax(1)
        for name, reference in REFERENCES.items():
            wanted = reference(truth, predicted) if stop > start else None
            assert found[name][owner] == (None if wanted is None else pytest.approx(wanted, abs=1e-12)), name
        sides = [truth == c for c in range(1 if classes == 2 else 0, classes)]
        shown = probabilities[start:stop, 1 if classes == 2 else 0 :].T
        each = [roc_auc_score(t, p) for t, p in zip(sides, shown, strict=True) if t.any() and not t.all()]
        assert found["auc"][owner] == (pytest.approx(np.mean(each), abs=1e-12) if each else None)
        each = [average_precision_score(t, p) for t, p in zip(sides, shown, strict=True) if t.any()]
        assert found["average_precision"][owner] == (pytest.approx(np.mean(each), abs=1e-12) if each else None)
        _check_calibration(found, owner, truth, probabilities[start:stop])
        second = f1_score(truth, predicted, zero_division=0) if classes == 2 and (truth | predicted).any() else None
        assert found["f1"][owner] == (
            found["macro_f1"][owner] if classes > 2 else None if second is None else pytest.approx(second)
        )
        assert found["loss"][owner] == (2.0 if stop > start else None)


def _check_calibration(
    found: dict[str, list[float | None]], owner: int, truth: np.ndarray, probabilities: np.ndarray
) -> None:
    if not len(truth):
        assert found["brier"][owner] is None and found["ece"][owner] is None
        return
    shares = probabilities.astype(np.float64) / probabilities.astype(np.float64).sum(1, keepdims=True)
    classes = shares.shape[1]
    # By hand, because scikit-learn has it for more than two classes only from 1.7 on.
    brier = np.square(shares - np.eye(classes)[truth]).sum(1).mean() / (2 if classes == 2 else 1)
    assert found["brier"][owner] == pytest.approx(brier, abs=1e-12)
    assert found["ece"][owner] == pytest.approx(ece_by_hand(truth, probabilities), abs=1e-9)


def test_pooling_adds_up(drawn: tuple[np.ndarray, np.ndarray]) -> None:
    labels, probabilities = drawn
    parts = [score_of(labels[a:b], probabilities[a:b]) for a, b in ((0, 7), (7, 30), (30, 60))]
    pooled, whole = Score.joined(parts).pooled(), score_of(*drawn)
    assert not pooled.ranked  # ranks do not add up
    for name in ("accuracy", "loss", "f1", "macro_f1", "weighted_f1", "miou", "perplexity"):
        assert METRICS[name].value(pooled).items() == METRICS[name].value(whole).items()
        assert METRICS[name].value(parts[0] + parts[1] + parts[2]).items() == METRICS[name].value(whole).items()


def test_auc_of_one_class_is_undefined_and_that_of_a_diverged_model_not_a_number() -> None:
    one_class, even = np.zeros(3, np.int64), np.full((3, 2), 0.5, np.float32)
    assert value_of(auc(score_of(one_class, even))) is None
    for labels in (one_class, np.array([0, 1, 0])):
        assert np.isnan(value_of(auc(score_of(labels, np.full_like(even, np.nan)))) or 0)


def test_auc_of_two_classes_is_that_of_the_second() -> None:
    labels = np.array([0, 0, 1, 1])
    second = np.array([0.1, 0.6, 0.5, 0.9], np.float32)
    assert value_of(auc(score_of(labels, np.stack([1 - second, second], 1)))) == 0.75


def test_average_precision_by_hand() -> None:
    # From the largest score: a hit, a tie of a hit and a miss, and a miss: 1/2 * 1/1 + 1/2 * 2/3.
    second = np.array([0.9, 0.5, 0.5, 0.1], np.float32)
    score = score_of(np.array([1, 1, 0, 0]), np.stack([1 - second, second], 1))
    assert value_of(average_precision(score)) == pytest.approx(1 / 2 + 1 / 3, abs=1e-15)
    assert value_of(average_precision(score_of(np.zeros(4, np.int64), np.stack([1 - second, second], 1)))) is None
    nan = np.full((2, 2), np.nan, np.float32)
    assert np.isnan(value_of(average_precision(score_of(np.array([0, 1]), nan))) or 0)


def test_calibration_by_hand() -> None:
    logits, y = torch.log(torch.tensor([[0.25, 0.75], [0.25, 0.75], [0.9, 0.1]]).double()), torch.tensor([1, 0, 0])
    brier, gaps = METRICS["brier"].sums, METRICS["ece"].sums
    assert brier is not None and gaps is not None
    assert brier(logits, y).flatten().tolist() == pytest.approx([1 / 16, 9 / 16, 1 / 100])
    # 0.75 and 0.9 lie in bins of their own: |1/2 - 3/4| * 2/3 + |1 - 0.9| / 3.
    sums = np.append(gaps(logits, y).sum(0).numpy(), 3)
    one = np.ones(2, np.int64)
    assert value_of(METRICS["ece"].value(Score(one, one, one, np.zeros(()), sums={"ece": sums}))) == pytest.approx(0.2)


@pytest.mark.parametrize("name", ["auc", "average_precision"])
def test_ranks_are_needed(name: str) -> None:
    one = np.ones((1, 2), np.int64)
    with pytest.raises(ValueError, match=f"{name} needs ranks"):
        METRICS[name].value(Score(one, one, one, np.zeros(1)))


def test_miou_by_hand() -> None:
    # Class 0 has 2 hits in a union of 3, class 1 has 1 in 1, class 2 is only predicted, class 3 does not occur.
    score = Score(np.array([2, 1, 0, 0]), np.array([3, 1, 0, 0]), np.array([2, 1, 1, 0]), np.zeros(()))
    assert value_of(miou(score)) == pytest.approx((2 / 3 + 1 + 0) / 3)
    assert value_of(accuracy(score)) == 3 / 4 and value_of(loss(score)) == 0
    assert value_of(macro_f1(score)) == pytest.approx((4 / 5 + 1 + 0) / 3)
    assert value_of(weighted_f1(score)) == pytest.approx((3 * 4 / 5 + 1) / 4)


def test_a_mean_leaves_out_what_is_undefined_and_keeps_what_is_not_a_number() -> None:
    numbers = np.array([[1.0, 2.0, 9.0], [np.nan, 2.0, 9.0], [1.0, 2.0, 9.0]])
    values = Values(numbers, np.array([[True, True, False], [True, True, False], [False] * 3]))
    for weights, wanted in ((1, 1.5), ([3, 1, 5], 1.25)):
        first, diverged, undefined = values.mean(weights).items()
        assert first == wanted and np.isnan(diverged or 0) and undefined is None


class Counting:
    """Metric that counts the calls of one of its methods."""

    def __init__(self, counter: str) -> None:
        self.counter = counter

    def sums(self, outputs: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        self._count("summed")
        return outputs.new_ones(len(y))

    def value(self, sums: np.ndarray, samples: int) -> float:
        self._count("valued")
        return samples

    def _count(self, name: str) -> None:
        if name == self.counter:
            setattr(self, name, getattr(self, name, 0) + 1)


@pytest.mark.parametrize("counter", ["summed", "valued"])
def test_an_own_metric_that_keeps_something_on_itself_is_refused(counter: str) -> None:
    says = rf"metric 'mine' of evaluate.metrics: must keep nothing on itself, and sets '{counter}' .*; compute it anew"
    with pytest.raises(InputError, match=says):
        check_metrics([own_metric("mine", Counting(counter))], torch.zeros(2, 3), torch.zeros(2))


def test_an_own_metric_of_another_number_of_values_in_each_call_is_named() -> None:
    none = np.zeros((1, 2), np.int64)
    one, two = (Score(none, none, none, np.zeros(1), sums={"odd": np.ones((1, width))}) for width in (2, 4))
    for joined in (lambda: Score.joined([one, two]), lambda: one + two):
        with pytest.raises(
            RunInputError, match=r"metric 'odd' of evaluate\.metrics: must give .* gives 1 or 3; correct"
        ):
            joined()


def test_an_own_function_gives_one_number_for_each_sample() -> None:
    def two(outputs: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return outputs[:, :2]

    says = r"two': must give a number for each sample, \(2,\), and gives \(2, 2\) .*; take the mean of each row, or"
    with pytest.raises(InputError, match=says):
        check_metrics([own_metric("two", two)], torch.zeros(2, 3), torch.zeros(2))


def test_an_own_metric_that_cannot_take_float64_is_refused() -> None:
    weights = torch.ones(3, 1)

    def weighed(outputs: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return (outputs @ weights)[:, 0]

    says = r"metric 'mine' .*: must take outputs of float64, .* and raised RuntimeError: .*; convert its other tensors"
    with pytest.raises(RunInputError, match=says):
        check_metrics([own_metric("mine", weighed)], torch.zeros(2, 3), torch.zeros(2))
    check_metrics([own_metric("mine", lambda outputs, y: outputs @ weights[:2])], torch.zeros(2, 3), torch.zeros(2))


def test_a_metric_with_a_wrong_value_too_is_refused_for_its_type_first() -> None:
    class Both:
        def sums(self, outputs: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return outputs @ torch.ones(3, 1)

        def value(self, sums: np.ndarray, samples: int) -> np.ndarray:
            return sums / samples

    with pytest.raises(RunInputError, match="must take outputs of float64"):
        check_metrics([own_metric("both", Both())], torch.zeros(2, 3), torch.zeros(2))
