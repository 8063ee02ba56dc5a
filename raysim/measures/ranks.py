"""Areas under ROC curves from ranks: exact integers until the last division, so no order of samples matters.

    A_c = (number of pairs with s_i > s_j + 1/2 number of pairs with s_i = s_j) / (P N)

over the pairs of a sample i of class c and a sample j of another class, s being the log-odds of c in float64. It is
the trapezoidal area, ties included.
"""

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
    0, and those from 2^511 on with infinity.

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


def areas(keys: NDArray[np.int64], counts: NDArray[np.int64]) -> Values:
    """Return the area of each owner and class, [owners, classes].

    An area is undefined without samples on both sides, and NaN if a score is NaN.

    Args:
        keys: keys of all owners' samples, end to end, [classes, n].
        counts: number of each owner's samples, [owners].
    """
    step = max(1, AT_ONCE // max(1, keys.shape[1]))
    return Values.joined([_areas(keys[start : start + step], counts) for start in range(0, len(keys), step)], axis=1)


def _areas(keys: NDArray[np.int64], counts: NDArray[np.int64]) -> Values:
    """Return the areas of some classes, ranked by one sort of each owner's samples."""
    classes, samples = keys.shape
    table, owners = keys.copy(), np.concatenate([[0], np.cumsum(counts)])
    for start, stop in pairwise(owners):
        table[:, start:stop].sort(axis=1)
    ordered, bounds = table.ravel(), samples * np.arange(classes)[:, None] + owners
    positives = _cumulated((ordered & 1).astype(np.int64))

    # Samples of one owner with one score are a tie; each owner of a class begins one.
    scores, begins = ordered >> 1, np.ones(ordered.size, np.bool_)
    np.not_equal(scores[1:], scores[:-1], out=begins[1:])
    begins[bounds[bounds < ordered.size]] = True
    starts = np.flatnonzero(begins)
    ends = np.append(starts[1:], ordered.size)
    of_class = positives[ends] - positives[starts]
    below = starts - positives[starts]
    # Of twice the pairs, each sample below counts two, and each in the tie one.
    pairs = _cumulated(of_class * (2 * below + (ends - starts - of_class)))

    tie, first, last = np.searchsorted(starts, bounds), bounds[:, :-1], bounds[:, 1:]
    true = positives[last] - positives[first]
    rest = last - first - true
    won = pairs[tie[:, 1:]] - pairs[tie[:, :-1]] - 2 * (first - positives[first]) * true
    found = Values.ratio(won.T, (2 * true * rest).T)
    # The largest key of an owner shows whether any of its scores is NaN.
    largest = ordered[np.maximum(last, 1) - 1].T if ordered.size else np.zeros(found.defined.shape)
    diverged = (largest >= 2 * UNDEFINED) & (counts > 0)[:, None]
    return Values(np.where(diverged, np.nan, found.numbers), found.defined | diverged)


def _cumulated(values: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the sum of the values before each one, and of all."""
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(values)])
