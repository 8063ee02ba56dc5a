"""Metrics of classifiers, for one of them or for many at once, from counts that can be added up."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class Values:
    """Values of which some are undefined. NaN is defined: the value of a model that diverged.

    Args:
        numbers: values, float64 [...]; an undefined value has any number.
        defined: whether each value is defined, bool [...].
    """

    numbers: NDArray[np.float64]
    defined: NDArray[np.bool_]

    @classmethod
    def ratio(cls, above: NDArray[Any], below: NDArray[Any]) -> Values:
        """Return the quotients of two arrays, undefined if the divisor is 0."""
        defined = below > 0
        return cls(np.divide(above, below, out=np.zeros(below.shape), where=defined), defined)

    @classmethod
    def joined(cls, each: Sequence[Values], axis: int = 0) -> Values:
        """Return some values as one array along an axis."""
        return cls(np.concatenate([v.numbers for v in each], axis), np.concatenate([v.defined for v in each], axis))

    def sums(self, weights: Any = 1) -> tuple[NDArray[np.float64], NDArray[Any]]:
        """Return the weighted sum of the defined values along the last axis, and the sum of their weights."""
        return (np.where(self.defined, self.numbers, 0.0) * weights).sum(-1), (self.defined * weights).sum(-1)

    def mean(self, weights: Any = 1) -> Values:
        """Return the weighted mean of the defined values along the last axis."""
        return Values.ratio(*self.sums(weights))

    def items(self) -> list[float | None]:
        """Return the values one by one; None for an undefined one."""
        pairs = zip(self.numbers.ravel().tolist(), self.defined.ravel().tolist(), strict=True)
        return [number if defined else None for number, defined in pairs]


@dataclass(frozen=True, eq=False)
class Score:
    """Counts of predictions on some samples, or on their labelled pixels: of one classifier, or with leading axes.

    They are the diagonal of a confusion matrix and the sums of its rows and of its columns.

    Args:
        correct: labels of each class that were predicted, int64 [..., classes].
        labels: labels of each class, int64 [..., classes].
        predicted: predictions of each class, int64 [..., classes].
        loss: sum of the cross-entropies, float64 [...].
        areas: area under the ROC curve of each class against the rest, [..., classes], or that of the second of two
            classes, [..., 1]; None without the AUC.
    """

    correct: NDArray[np.int64]
    labels: NDArray[np.int64]
    predicted: NDArray[np.int64]
    loss: NDArray[np.float64]
    areas: Values | None = None

    @classmethod
    def joined(cls, scores: Sequence[Score]) -> Score:
        """Return the counts of some scores along the first axis; drop their areas."""
        correct, labels, predicted, loss = (np.concatenate(e) for e in zip(*(s._counts for s in scores), strict=True))
        return cls(correct, labels, predicted, loss)

    def pooled(self, groups: int = 1) -> Score:
        """Return the counts of equal groups of neighbours on the first axis; drop the areas, which do not add up."""
        correct, labels, predicted, loss = (e.reshape(groups, -1, *e.shape[1:]).sum(1) for e in self._counts)
        return Score(correct, labels, predicted, loss)

    def __add__(self, other: Score) -> Score:
        """Add the counts of other samples of the same classifiers; drop the areas."""
        correct, labels, predicted, loss = (a + b for a, b in zip(self._counts, other._counts, strict=True))
        return Score(correct, labels, predicted, loss)

    @property
    def samples(self) -> NDArray[np.int64]:
        """Number of labels."""
        samples: NDArray[np.int64] = self.labels.sum(-1)
        return samples

    @property
    def _counts(self) -> tuple[NDArray[Any], ...]:
        return self.correct, self.labels, self.predicted, self.loss


def accuracy(score: Score) -> Values:
    """Return the share of samples whose most probable class is the true one."""
    return Values.ratio(score.correct.sum(-1), score.samples)


def loss(score: Score) -> Values:
    """Return the mean cross-entropy."""
    return Values.ratio(score.loss, score.samples)


def macro_f1(score: Score) -> Values:
    """Return the mean F1 of the classes that occur, as true or predicted class."""
    return _f1(score).mean()


def weighted_f1(score: Score) -> Values:
    """Return the mean F1 of the classes, weighted by their true samples."""
    return _f1(score).mean(score.labels)


def auc(score: Score) -> Values:
    """Return the area under the ROC curve, one class against the rest, averaged over the classes.

    Two classes have one area, that of the second class. A class without samples on both sides is left out; if all
    are, the result is undefined. The result is NaN if a probability is not finite, because the model diverged.
    """
    if score.areas is None:
        raise ValueError("the AUC needs the areas of the classes: evaluate with metrics that include it")
    return score.areas.mean()


def miou(score: Score) -> Values:
    """Return the mean intersection over union, TP / (TP + FP + FN), of the classes that occur."""
    return Values.ratio(score.correct, score.labels + score.predicted - score.correct).mean()


METRICS: Mapping[str, Callable[[Score], Values]] = {
    "accuracy": accuracy,
    "loss": loss,
    "macro_f1": macro_f1,
    "weighted_f1": weighted_f1,
    "auc": auc,
    "miou": miou,
}
"""Metrics by name; without labels each of them is undefined."""


def _f1(score: Score) -> Values:
    """Return the F1 of each class, 2 TP / (2 TP + FP + FN); undefined for a class that does not occur."""
    return Values.ratio(2 * score.correct, score.labels + score.predicted)
