"""Areas under ROC curves, and average precisions, from ranks. No order of samples matters.

    A_c = (number of pairs with s_i > s_j + 1/2 number of pairs with s_i = s_j) / (P N)

over the pairs of a sample i of class c and a sample j of another class, s being the log-odds of c in float64. It is
the trapezoidal area, ties included, in exact integers until the last division. The average precision is

    AP_c = sum_t (R_t - R_(t-1)) P_t

over the distinct scores t from the largest, P_t and R_t being precision and recall of the samples from t on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from raysim.measures.metrics import Values

AT_ONCE = 2**18
"""Keys that are ranked together, unless a single class has more."""

UNDEFINED = 2**62 - 1
"""Rank of NaN, the largest one."""

LEAST = np.float64(2.0**-512).view(np.int64)
"""Bits of the largest score that ties with 0; those of float32 logits that differ are larger."""


def log_odds(outputs: torch.Tensor) -> torch.Tensor:
    """Return the log-odds of each class against the rest, up to a constant, float64 [n, classes].

        z_c - log mean_(j != c) exp z_j = log(p_c / (1 - p_c)) + log(C - 1);   of two classes the difference of logits

    They are ordered like the probabilities p, but neither saturate nor lie close together: a p of float32 is 1 from a
    difference of 17 on, and equal logits give 0, where floats are finest. NaN stands for a probability that is NaN.

    Args:
        outputs: logits z, [n, classes C].
    """
    z = outputs.double()
    largest = z.amax(1, keepdim=True)
    if z.shape[1] < 3:
        odds = z - z.flip(1)
    else:
        z = z - largest
        # Sums of sorted values: the same logits in another order give the same sum, and therefore a tie.
        ordered = z.sort(1, descending=True).values
        others = ordered.expm1().sum(1, keepdim=True) - z.expm1()
        # The others' share is too small beside that of a largest logit to be found by subtraction.
        second = ordered[:, 1:2].clamp(min=torch.finfo(z.dtype).min)
        rest = second + (ordered[:, 1:] - second).expm1().mean(1, keepdim=True).log1p()
        odds = torch.where(z == 0, -rest, z - (others / (z.shape[1] - 1)).log1p())
    return torch.where(largest.isfinite(), odds, torch.nan)


def rank_keys(scores: NDArray[np.floating[Any]], labels: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return one key for each class and sample; keys are ordered like scores, and hold the truth in bit 0.

    Scores keep all bits of a float64: the truth takes the place of half of its exponents. Sizes up to 2^-512 tie with
    0, and those from 2^512 on with infinity.

    Args:
        scores: scores of the classes, such as `log_odds`, [n, classes].
        labels: true classes, [n].

    Returns:
        Keys [classes, n], or [1, n] of the second of two classes.
    """
    classes = scores.shape[1]
    first = 1 if classes == 2 else 0
    given = scores.T[first:].astype(np.float64)
    # Bits of positive floats are ordered like the floats.
    sizes = np.clip(np.abs(given).view(np.int64) - LEAST, 0, UNDEFINED - 1)
    ordered = np.where(np.isnan(given), UNDEFINED, np.where(given < 0, -sizes, sizes))
    keys: NDArray[np.int64] = 2 * ordered + (labels == np.arange(first, classes)[:, None])
    return keys


def ranked(name: str, keys: NDArray[np.int64], counts: NDArray[np.int64]) -> Values:
    """Return a metric of `RANKED` for each owner and class, [owners, classes].

    Args:
        name: name of the metric.
        keys: keys of all owners' samples, end to end, [classes, n].
        counts: number of each owner's samples, [owners].
    """
    # A few classes at a time.
    step = max(1, AT_ONCE // max(1, keys.shape[1]))
    slices = (keys[start : start + step] for start in range(0, len(keys), step))
    return Values.joined([RANKED[name](_Ties.of(each, counts)) for each in slices], axis=1)


@dataclass(frozen=True, eq=False)
class _Ties:
    """Samples of some classes, ranked by one sort of each owner's; those of one owner with one score are a tie.

    Args:
        starts: place of the first sample of each tie, [ties].
        ends: place after the last one, [ties].
        positives: samples of the class before each place, [places + 1].
        of_class: samples of the class in each tie, [ties].
        first: place of each owner's first sample, [classes, owners].
        last: place after it, [classes, owners].
        tie: number of each owner's first tie, and of the next owner's, [classes, owners + 1].
        diverged: whether an owner has a score that is NaN, [owners, classes].
    """

    starts: NDArray[np.int64]
    ends: NDArray[np.int64]
    positives: NDArray[np.int64]
    of_class: NDArray[np.int64]
    first: NDArray[np.int64]
    last: NDArray[np.int64]
    tie: NDArray[np.int64]
    diverged: NDArray[np.bool_]

    @classmethod
    def of(cls, keys: NDArray[np.int64], counts: NDArray[np.int64]) -> _Ties:
        """Return the ties of keys [classes, n]."""
        classes, samples = keys.shape
        table, owners = keys.copy(), np.concatenate([[0], np.cumsum(counts)])
        for start, stop in pairwise(owners):
            table[:, start:stop].sort(axis=1)
        ordered, bounds = table.ravel(), samples * np.arange(classes)[:, None] + owners
        positives = _cumulated((ordered & 1).astype(np.int64))
        # Each owner of a class begins a tie.
        scores, begins = ordered >> 1, np.ones(ordered.size, np.bool_)
        np.not_equal(scores[1:], scores[:-1], out=begins[1:])
        begins[bounds[bounds < ordered.size]] = True
        starts = np.flatnonzero(begins)
        ends = np.append(starts[1:], ordered.size)
        last = bounds[:, 1:]
        # The largest key of an owner shows whether any of its scores is NaN.
        largest = ordered[np.maximum(last, 1) - 1].T if ordered.size else np.zeros(last.T.shape, np.int64)
        diverged = (largest >= 2 * UNDEFINED) & (counts > 0)[:, None]
        of_class, tie = positives[ends] - positives[starts], np.searchsorted(starts, bounds)
        return cls(starts, ends, positives, of_class, bounds[:, :-1], last, tie, diverged)

    def areas(self) -> Values:
        """Return the area of each owner and class, [owners, classes]; undefined without samples on both sides."""
        below = self.starts - self.positives[self.starts]
        # Of twice the pairs, each sample below counts two, and each in the tie one.
        pairs = _cumulated(self.of_class * (2 * below + (self.ends - self.starts - self.of_class)))
        true, before = self._true, self.first - self.positives[self.first]
        won = pairs[self.tie[:, 1:]] - pairs[self.tie[:, :-1]] - 2 * before * true
        return self._or_diverged(Values.ratio(won.T, (2 * true * (self.last - self.first - true)).T))

    def precisions(self) -> Values:
        """Return the average precision of each owner and class, [owners, classes]; undefined without a sample of it."""
        ties = np.diff(self.tie, axis=1).ravel()
        last = np.repeat(self.last.ravel(), ties)
        precision = (self.positives[last] - self.positives[self.starts]) / (last - self.starts)
        # `bincount` adds one tie after the other: an owner's sum depends on its own samples alone.
        owner = np.repeat(np.arange(ties.size), ties)
        sums = np.bincount(owner, self.of_class * precision, ties.size).reshape(self.last.shape)
        return self._or_diverged(Values.ratio(sums.T, self._true.T))

    @property
    def _true(self) -> NDArray[np.int64]:
        """Samples of the class, [classes, owners]."""
        true: NDArray[np.int64] = self.positives[self.last] - self.positives[self.first]
        return true

    def _or_diverged(self, found: Values) -> Values:
        return Values(np.where(self.diverged, np.nan, found.numbers), found.defined | self.diverged)


RANKED: Mapping[str, Callable[[_Ties], Values]] = {"auc": _Ties.areas, "average_precision": _Ties.precisions}
"""Metrics from ranks by name; NaN for an owner with a score that is NaN."""


def _cumulated(values: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the sum of the values before each one, and of all."""
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(values)])
