"""Metrics of models, for one of them or for many at once, from counts and sums that can be added up."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import wraps
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from algorithms.core.returned import Returned, name_of
from algorithms.training.loss import LabelKind
from raysim.common.errors import InputError

if TYPE_CHECKING:  # The experiment file is checked before torch is imported.
    import torch


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
    """Counts and sums of predictions on some samples, or on their labelled pixels or positions.

    They are those of one model, or of several along leading axes. The counts are the diagonal of a confusion matrix and
    the sums of its rows and of its columns. Labels that are numbers count as one class, which is never predicted.

    Args:
        correct: labels of each class that were predicted, int64 [..., classes].
        labels: labels of each class, int64 [..., classes].
        predicted: predictions of each class, int64 [..., classes].
        loss: sum of the losses, float64 [...].
        ranked: number of each class against the rest from ranks, [..., classes], or that of the second of two classes,
            [..., 1], by metric; see `ranks`.
        sums: sums of a metric's numbers over samples, and the number of samples, float64 [..., k + 1], by metric.
    """

    correct: NDArray[np.int64]
    labels: NDArray[np.int64]
    predicted: NDArray[np.int64]
    loss: NDArray[np.float64]
    ranked: Mapping[str, Values] = field(default_factory=dict)
    sums: Mapping[str, NDArray[np.float64]] = field(default_factory=dict)

    @classmethod
    def joined(cls, scores: Sequence[Score]) -> Score:
        """Return the counts of some scores along the first axis; drop their ranks."""
        return cls._of(np.concatenate, [score._counts for score in scores])

    def pooled(self, groups: int = 1) -> Score:
        """Return the counts of equal groups of neighbours on the first axis; drop the ranks, which do not add up."""
        return self._of(lambda each: each[0].reshape(groups, -1, *each[0].shape[1:]).sum(1), [self._counts])

    def __add__(self, other: Score) -> Score:
        """Add the counts of other samples of the same models; drop the ranks."""
        return self._of(lambda each: each[0] + each[1], [self._counts, other._counts])

    @classmethod
    def _of(cls, function: Callable[[list[Any]], Any], counts: Sequence[Mapping[str, NDArray[Any]]]) -> Score:
        """Apply a function to the arrays of equal names; raise InputError if a metric's sums differ in their number."""
        for name in counts[0].keys() - COUNTS:
            numbers = sorted({each[name].shape[-1] - 1 for each in counts})
            if len(numbers) > 1:
                raise InputError(
                    f"metric {name!r} of evaluate.metrics: must give the same number of values for every sample, and "
                    f"gives {' or '.join(map(str, numbers))}; correct its `sums`"
                )
        done = {name: function([each[name] for each in counts]) for name in counts[0]}
        correct, labels, predicted, loss = (done.pop(name) for name in COUNTS)
        return cls(correct, labels, predicted, loss, sums=done)

    @property
    def samples(self) -> NDArray[np.int64]:
        """Number of labels."""
        samples: NDArray[np.int64] = self.labels.sum(-1)
        return samples

    @property
    def _counts(self) -> Mapping[str, NDArray[Any]]:
        return {**{name: getattr(self, name) for name in COUNTS}, **self.sums}


COUNTS = ("correct", "labels", "predicted", "loss")
"""Arrays of every score; a metric's sums have the metric's name."""


def accuracy(score: Score) -> Values:
    """Return the share of samples whose most probable class is the true one."""
    return Values.ratio(score.correct.sum(-1), score.samples)


def loss(score: Score) -> Values:
    """Return the mean loss of the labels: `local.loss`, by default the cross-entropy."""
    return Values.ratio(score.loss, score.samples)


def perplexity(score: Score) -> Values:
    """Return the exponential of the mean loss."""
    mean = loss(score)
    with np.errstate(over="ignore"):
        return Values(np.exp(mean.numbers), mean.defined)


def f1(score: Score) -> Values:
    """Return the F1 of the second of two classes; of more classes, or of one, the same as `macro_f1`."""
    each = _f1(score)
    return Values(each.numbers[..., 1], each.defined[..., 1]) if score.labels.shape[-1] == 2 else each.mean()


def macro_f1(score: Score) -> Values:
    """Return the mean F1 of the classes that occur, as true or predicted class."""
    return _f1(score).mean()


def weighted_f1(score: Score) -> Values:
    """Return the mean F1 of the classes, weighted by their true samples."""
    return _f1(score).mean(score.labels)


def auc(score: Score) -> Values:
    """Return the area under the ROC curve, one class against the rest, averaged over the classes.

    Samples are ranked by the log-odds of the class, which do not saturate; see `ranks`. Two classes have one area, that
    of the second class. A class without samples on both sides is left out; if all are, the result is undefined. The
    result is NaN if a probability is NaN, because the model diverged.
    """
    return _of_ranks("auc", score)


def average_precision(score: Score) -> Values:
    """Return the average precision, one class against the rest, averaged over the classes; see `ranks`.

    Two classes have one, that of the second class. A class without samples is left out; if all are, the result is
    undefined. The result is NaN if a probability is NaN, because the model diverged.
    """
    return _of_ranks("average_precision", score)


def _of_ranks(name: str, score: Score) -> Values:
    if name not in score.ranked:
        raise ValueError(f"{name} needs ranks: evaluate with metrics that include it")
    return score.ranked[name].mean()


def miou(score: Score) -> Values:
    """Return the mean intersection over union, TP / (TP + FP + FN), of the classes that occur."""
    return Values.ratio(score.correct, score.labels + score.predicted - score.correct).mean()


def squared_errors(outputs: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Return each sample's squared error, the mean over its numbers, [n, 1]."""
    return (outputs - y).square().mean(1, keepdim=True)


def absolute_errors(outputs: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Return each sample's absolute error, the mean over its numbers, [n, 1]."""
    return (outputs - y).abs().mean(1, keepdim=True)


def variations(outputs: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Return y, y^2 and the squared error of each number, [n, 3 numbers]."""
    return _beside(y, y.square(), (outputs - y).square())


def r2(score: Score) -> Values:
    """Return R2 = 1 - sum (y - outputs)^2 / sum (y - mean y)^2, averaged over the numbers that vary."""
    y, squares, errors, samples = _thirds(score.sums["r2"])
    spread = squares - np.divide(y**2, samples, out=np.zeros(y.shape), where=samples > 0)
    # Rounding leaves a spread of numbers that are all equal: some units of the last place a sum.
    varies = spread > 4 * np.finfo(np.float64).eps * np.sqrt(samples) * squares
    shares = Values.ratio(errors, np.where(varies, spread, 0))
    return Values(1 - shares.numbers, shares.defined).mean()


def hits(outputs: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Return each label's hit, prediction (a logit above 0) and presence (above 1/2), [n, 3 labels]."""
    predicted, there = (outputs > 0).double(), (y > 0.5).double()
    return _beside(predicted * there, predicted, there)


def multilabel_f1(score: Score) -> Values:
    """Return the F1 of each of a sample's labels, averaged over the labels that occur, as true or predicted ones."""
    both, predicted, there, _ = _thirds(score.sums["multilabel_f1"])
    return Values.ratio(2 * both, predicted + there).mean()


def brier_scores(logits: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Return each sample's Brier score, sum_c (p_c - [c = y])^2; half of it for two classes, (p - y)^2. [n, 1]."""
    from torch.nn.functional import one_hot

    squares = (logits.softmax(1) - one_hot(y, logits.shape[1])).square().sum(1, keepdim=True)
    return squares / 2 if logits.shape[1] == 2 else squares


CALIBRATION_BINS = 15
"""Bins of equal width of the expected calibration error."""


def confidence_gaps(logits: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Return each sample's hit less its confidence, max_c p_c, in the column of its bin, [n, CALIBRATION_BINS]."""
    confidence, predicted = logits.softmax(1).max(1)
    gaps = (predicted == y).to(logits.dtype) - confidence
    # Bin m holds confidences in ((m - 1) / M, m / M]; those of a model that diverged go anywhere.
    bins = (confidence.nan_to_num() * CALIBRATION_BINS).ceil().long().sub(1).clamp(0, CALIBRATION_BINS - 1)
    return gaps.new_zeros(len(y), CALIBRATION_BINS).scatter(1, bins[:, None], gaps[:, None])


def ece(score: Score) -> Values:
    """Return the expected calibration error, sum_m |B_m| / n |accuracy(B_m) - confidence(B_m)|.

    The bins B_m hold samples by the probability of their most probable class.

    Paper: Guo et al., "On calibration of modern neural networks", 2017, equation 3, with its 15 bins.
    """
    sums = score.sums["ece"]
    return Values.ratio(np.abs(sums[..., :-1]).sum(-1), sums[..., -1])


def mean_of(name: str) -> Callable[[Score], Values]:
    """Return the mean of a metric's number over samples."""

    def mean(score: Score) -> Values:
        return Values.ratio(score.sums[name][..., 0], score.sums[name][..., -1])

    return mean


def _beside(*columns: torch.Tensor) -> torch.Tensor:
    from torch import cat

    return cat(columns, 1)


def _thirds(sums: NDArray[np.float64]) -> tuple[NDArray[np.float64], ...]:
    """Return three groups of sums, [..., k] each, and the number of samples, [..., 1]."""
    one, two, three = np.split(sums[..., :-1], 3, -1)
    return one, two, three, sums[..., -1:]


CLASSES: tuple[LabelKind, ...] = ("class", "pixels", "sequence")
NUMBERS: tuple[LabelKind, ...] = ("numbers",)


@dataclass(frozen=True)
class Metric:
    """A metric: a value from counts and sums of samples.

    Args:
        name: name of the metric, the last part of its column.
        value: function of a score.
        labels: kinds of labels that it measures.
        sums: function of (outputs, y) that returns numbers of each sample to sum, [n, k]; None if counts are enough.
        of_classes: whether `sums` takes a logit for each class, even if the model has one for two classes.
    """

    name: str
    value: Callable[[Score], Values]
    labels: tuple[LabelKind, ...] = CLASSES
    sums: Callable[[torch.Tensor, torch.Tensor], torch.Tensor] | None = None
    of_classes: bool = False


METRICS: Mapping[str, Metric] = {
    metric.name: metric
    for metric in (
        Metric("accuracy", accuracy),
        Metric("loss", loss, (*CLASSES, *NUMBERS)),
        Metric("f1", f1),
        Metric("macro_f1", macro_f1),
        Metric("weighted_f1", weighted_f1),
        Metric("auc", auc, ("class",)),
        Metric("average_precision", average_precision, ("class",)),
        Metric("brier", mean_of("brier"), ("class",), brier_scores, of_classes=True),
        Metric("ece", ece, ("class",), confidence_gaps, of_classes=True),
        Metric("miou", miou),
        Metric("perplexity", perplexity),
        Metric("mse", mean_of("mse"), NUMBERS, squared_errors),
        Metric("mae", mean_of("mae"), NUMBERS, absolute_errors),
        Metric("r2", r2, NUMBERS, variations),
        Metric("multilabel_f1", multilabel_f1, NUMBERS, hits),
    )
}
"""Metrics by name; without labels each of them is undefined."""


def own_metric(name: str, thing: Any) -> Metric:
    """Return a user's own metric.

    Args:
        name: name of the metric.
        thing: function of (outputs, y) that returns a number for each sample, whose mean is the metric; or an object
            whose `sums(outputs, y)` are numbers of each sample, [n, k], and whose `value(sums, samples)` is the metric.
    """
    kinds, function = (*CLASSES, *NUMBERS), getattr(thing, "sums", thing)

    @wraps(function, assigned=(), updated=())  # so that errors find its place
    def sums(outputs: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = function(outputs.clone(), y.clone())  # It may change them in place.
        if function is thing and getattr(found, "ndim", 1) > 1:
            raise Returned(f"evaluate.metrics = {name_of(thing)!r}", thing).fault(
                f"give a number for each sample, ({len(y)},), and gives {tuple(found.shape)}",
                "take the mean of each row, or name an object with `sums` and `value`",
            )
        return found

    if not hasattr(thing, "sums"):
        return Metric(name, mean_of(name), kinds, sums)

    returned = Returned(f"evaluate.metrics = {name_of(thing)!r}", thing.value)

    def value(score: Score) -> Values:
        table = score.sums[name]
        flat = table.reshape(-1, table.shape[-1])
        numbers = [
            returned.number("its `value`", thing.value(row[:-1].copy(), int(row[-1]))) if row[-1] else 0.0
            for row in flat
        ]
        return Values(np.array(numbers).reshape(table.shape[:-1]), table[..., -1] > 0)

    return Metric(name, value, kinds, sums)


USUAL: Mapping[LabelKind, tuple[str, ...]] = {
    **dict.fromkeys(CLASSES, ("accuracy", "loss", "macro_f1", "weighted_f1")),
    "numbers": ("loss", "mse", "mae", "r2"),
}
"""Metrics of an evaluation that names none."""

BINARY: Mapping[LabelKind, tuple[str, ...]] = {**USUAL, "class": ("accuracy", "loss", "auc", "f1")} | {
    "numbers": ("loss", "multilabel_f1")
}
"""Metrics of an evaluation that names none, where all algorithms have the loss `binary`."""


def _f1(score: Score) -> Values:
    """Return the F1 of each class, 2 TP / (2 TP + FP + FN); undefined for a class that does not occur."""
    return Values.ratio(2 * score.correct, score.labels + score.predicted)
