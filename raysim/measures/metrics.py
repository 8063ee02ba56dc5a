"""Metrics of a classifier, from counts that can be added up."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Score:
    """What a model makes of some samples or, where pixels have classes, of all pixels that have one.

    Args:
        confusion: counts, int64 [classes, classes]: rows the true class, columns the predicted one.
        loss: the sum of the samples' cross-entropies.
        labels: true classes, int64 [n]; only where the AUC is asked for.
        probabilities: float32 [n, classes]; likewise.
    """

    confusion: NDArray[np.int64]
    loss: float
    labels: NDArray[np.int64] | None = None
    probabilities: NDArray[np.float32] | None = None

    @property
    def samples(self) -> int:
        """How many labels it is of."""
        return int(self.confusion.sum())


def pooled(scores: Iterable[Score]) -> Score:
    """The score of all samples together, added up in order."""
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
    """Share of the samples whose most probable class is the true one."""
    return float(np.trace(score.confusion) / score.samples)


def loss(score: Score) -> float:
    """Mean cross-entropy."""
    return score.loss / score.samples


def macro_f1(score: Score) -> float:
    """F1 averaged over the classes that occur, true or predicted."""
    return _f1(score, "macro")


def weighted_f1(score: Score) -> float:
    """F1 averaged over the classes by their true samples."""
    return _f1(score, "weighted")


def auc(score: Score) -> float | None:
    """Area under the ROC curve: one class against the rest, averaged over the classes for which it is defined.

    With two classes, that of the second. None where no class has samples on both sides: then it is undefined. Not a
    number where a probability is none: then the model diverged.
    """
    if score.labels is None or score.probabilities is None:
        raise ValueError("the AUC needs the samples' probabilities: evaluate with metrics that include it")
    from sklearn.metrics import roc_auc_score  # in the driver only: actors count, and need not import it

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
    """Intersection over union, TP / (TP + FP + FN), averaged over the classes that occur, true or predicted."""
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
    """A metric by its name; None where it is undefined, as all are of samples whose pixels have no class."""
    return METRICS[name](score) if score.samples else None


def _f1(score: Score, average: str) -> float:
    from sklearn.metrics import f1_score

    truth, predicted = np.nonzero(score.confusion)
    weights = score.confusion[truth, predicted]
    return float(f1_score(truth, predicted, average=average, sample_weight=weights, zero_division=0))
