"""Metrics of a classifier from counts that can be added up."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Score:
    """Counts of a model's predictions on some samples, or on their labelled pixels.

    Args:
        confusion: counts, int64 [classes, classes]: true class by row, predicted class by column.
        loss: sum of the cross-entropies.
        labels: true classes, int64 [n]; only for the AUC.
        probabilities: predicted probabilities, float32 [n, classes]; only for the AUC.
    """

    confusion: NDArray[np.int64]
    loss: float
    labels: NDArray[np.int64] | None = None
    probabilities: NDArray[np.float32] | None = None

    @property
    def samples(self) -> int:
        """Number of labels."""
        return int(self.confusion.sum())


def pooled(scores: Iterable[Score]) -> Score:
    """Return the score of all samples together, added in order."""
    every = list(scores)
    labels = [score.labels for score in every if score.labels is not None]
    probabilities = [score.probabilities for score in every if score.probabilities is not None]
    return Score(
        sum((score.confusion for score in every), np.zeros_like(every[0].confusion)),
        sum(score.loss for score in every),
        np.concatenate(labels) if labels else None,
        np.concatenate(probabilities) if probabilities else None,
    )


def accuracy(score: Score) -> float:
    """Return the share of samples whose most probable class is the true one."""
    return float(np.trace(score.confusion) / score.samples)


def loss(score: Score) -> float:
    """Return the mean cross-entropy."""
    return score.loss / score.samples


def macro_f1(score: Score) -> float:
    """Return the mean F1 of the classes that occur, as true or predicted class."""
    return _f1(score, "macro")


def weighted_f1(score: Score) -> float:
    """Return the mean F1 of the classes, weighted by their true samples."""
    return _f1(score, "weighted")


def auc(score: Score) -> float | None:
    """Return the area under the ROC curve, one class against the rest, averaged over the classes.

    Two classes have one area, that of the second class. A class without samples on both sides is left out; if all
    are, the result is None. The result is NaN if a probability is not finite, because the model diverged.
    """
    if score.labels is None or score.probabilities is None:
        raise ValueError("the AUC needs the samples' probabilities: evaluate with metrics that include it")
    from sklearn.metrics import roc_auc_score  # Only the driver needs it; the import would slow each actor's start.

    if not np.isfinite(score.probabilities).all():
        return float("nan")
    classes = score.probabilities.shape[1]
    areas = []
    for c in range(1 if classes == 2 else 0, classes):
        truth = score.labels == c
        if truth.any() and not truth.all():
            areas.append(roc_auc_score(truth, score.probabilities[:, c]))
    return float(np.mean(areas)) if areas else None


def miou(score: Score) -> float:
    """Return the mean intersection over union, TP / (TP + FP + FN), of the classes that occur."""
    hits = np.diagonal(score.confusion)
    union = score.confusion.sum(0) + score.confusion.sum(1) - hits
    return float(np.mean(hits[union > 0] / union[union > 0]))


METRICS: Mapping[str, Callable[[Score], float | None]] = {
    "accuracy": accuracy,
    "loss": loss,
    "macro_f1": macro_f1,
    "weighted_f1": weighted_f1,
    "auc": auc,
    "miou": miou,
}


def value_of(name: str, score: Score) -> float | None:
    """Return a metric by its name; None if it is undefined, as every metric is without labels."""
    return METRICS[name](score) if score.samples else None


def _f1(score: Score, average: str) -> float:
    from sklearn.metrics import f1_score

    truth, predicted = np.nonzero(score.confusion)
    weights = score.confusion[truth, predicted]
    return float(f1_score(truth, predicted, average=average, sample_weight=weights, zero_division=0))
